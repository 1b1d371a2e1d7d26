/* Stops or fails one system call of a process: the k-th write, fsync, rename ... of a file whose path matches.

   FAULT_POINT: "call|pattern|k|moment"; moment is before, half (of a write) or after. The k-th in all processes.
   FAULT_MARK:  a folder; `hit` appears there once, with the process number, and the process waits for `go`.
   FAULT_ERROR: instead of waiting the call fails with this errno.
   FAULT_TRACE: a file that gets every call, to find points with. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#undef open
#undef open64
#undef openat
#undef openat64

typedef enum { GO_ON, BEFORE, HALF, AFTER } Moment;
typedef struct { char call[16], pattern[PATH_MAX], moment[16]; int number; } Point;

static int parsed;
static Point point;

static void *next_of(const char *name) { return dlsym(RTLD_NEXT, name); }

static long raw_write(int file, const void *data, size_t size) {
  static ssize_t (*next)(int, const void *, size_t);
  if (!next) next = next_of("write");
  return next(file, data, size);
}

static int raw_open(const char *path, int flags, int mode) {
  static int (*next)(const char *, int, ...);
  if (!next) next = next_of("open64");
  return next(path, flags, mode);
}

static void parse(void) {
  const char *text = getenv("FAULT_POINT");
  parsed = 1;
  if (!text || sscanf(text, "%15[^|]|%4095[^|]|%d|%15s", point.call, point.pattern, &point.number, point.moment) != 4)
    point.number = 0;
}

static void full_path(int folder, const char *path, char *full) {
  char link[64];
  ssize_t size;
  full[0] = 0;
  if (path && path[0] == '/') {
    snprintf(full, PATH_MAX, "%s", path);
    return;
  }
  if (folder == AT_FDCWD) snprintf(link, sizeof link, "/proc/self/cwd");
  else snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
  size = readlink(link, full, PATH_MAX - 1);
  full[size < 0 ? 0 : size] = 0;
  if (path) snprintf(full + strlen(full), PATH_MAX - strlen(full), "/%s", path);
}

static void trace(const char *call, const char *path) {
  const char *file = getenv("FAULT_TRACE");
  char line[PATH_MAX + 64];
  int out;
  if (!file) return;
  out = raw_open(file, O_WRONLY | O_APPEND | O_CREAT, 0644);
  raw_write(out, line, snprintf(line, sizeof line, "%d %s %s\n", getpid(), call, path));
  close(out);
}

/* How many calls have matched so far, in all processes: each adds a byte to a file. */
static int ordinal(void) {
  char path[PATH_MAX];
  const char *mark = getenv("FAULT_MARK");
  int file, number;
  snprintf(path, sizeof path, "%s/count", mark ? mark : ".");
  file = raw_open(path, O_WRONLY | O_CREAT | O_APPEND, 0644);
  if (file < 0) return 0;
  raw_write(file, ".", 1);
  number = (int)lseek(file, 0, SEEK_CUR);
  close(file);
  return number;
}

/* Where this call is to be stopped. */
static Moment here(const char *call, int folder, const char *path) {
  char full[PATH_MAX];
  int keep = errno;
  Moment moment = GO_ON;
  if (!parsed) parse();
  if (!point.number && !getenv("FAULT_TRACE")) return GO_ON;
  full_path(folder, path, full);
  trace(call, full);
  if (point.number && !strcmp(call, point.call) && !fnmatch(point.pattern, full, 0) &&
      ordinal() == point.number)
    moment = point.moment[0] == 'b' ? BEFORE : point.moment[0] == 'h' ? HALF : AFTER;
  errno = keep;
  return moment;
}

/* Wait to be let go, or say which error there is; 0 for none. */
static int stop(void) {
  char path[PATH_MAX], text[32];
  const char *mark = getenv("FAULT_MARK"), *error = getenv("FAULT_ERROR");
  int keep = errno, out;
  snprintf(path, sizeof path, "%s/hit", mark ? mark : ".");
  out = raw_open(path, O_WRONLY | O_CREAT | O_EXCL, 0644);
  if (out < 0) {
    errno = keep;
    return 0;
  }
  raw_write(out, text, snprintf(text, sizeof text, "%d\n", getpid()));
  close(out);
  if (error) return atoi(error);
  snprintf(path, sizeof path, "%s/go", mark ? mark : ".");
  while (access(path, F_OK)) usleep(1000);
  errno = keep;
  return 0;
}

/* A call that is stopped before or after it is made. */
#define STOPPED(result_type, call, folder, path, made)                  \
  do {                                                                  \
    Moment moment = here(call, folder, path);                           \
    int error = moment == BEFORE || moment == HALF ? stop() : 0;        \
    result_type result;                                                 \
    if (error) return errno = error, -1;                                \
    result = made;                                                      \
    if (moment == AFTER && (error = stop())) return errno = error, -1;  \
    return result;                                                      \
  } while (0)

/* A write may be stopped when half of it is done. */
#define WRITTEN(file, data, size, first, rest)                          \
  do {                                                                  \
    Moment moment = here("write", file, NULL);                          \
    ssize_t result, half = moment == HALF ? (ssize_t)(size) / 2 : 0;    \
    int error;                                                          \
    if (half) {                                                         \
      ssize_t done = first;                                             \
      if (done < 0) return done;                                        \
      if ((error = stop())) return errno = error, -1;                   \
      result = rest;                                                    \
      return result < 0 ? done : done + result;                         \
    }                                                                   \
    error = moment == BEFORE || moment == HALF ? stop() : 0;            \
    if (error) return errno = error, -1;                                \
    result = rest;                                                      \
    if (moment == AFTER && (error = stop())) return errno = error, -1;  \
    return result;                                                      \
  } while (0)

ssize_t write(int file, const void *data, size_t size) {
  WRITTEN(file, data, size, raw_write(file, data, half), raw_write(file, (const char *)data + half, size - half));
}

#define PWRITE(name, offset_type)                                                              \
  ssize_t name(int file, const void *data, size_t size, offset_type at) {                      \
    static ssize_t (*next)(int, const void *, size_t, offset_type);                            \
    if (!next) next = next_of(#name);                                                          \
    WRITTEN(file, data, size, next(file, data, half, at),                                      \
            next(file, (const char *)data + half, size - half, at + half));                    \
  }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

#define OPEN(name, folder_parameter, folder, pass)                                             \
  int name(folder_parameter const char *path, int flags, ...) {                                \
    static int (*next)(folder_parameter const char *, int, ...);                               \
    int mode = 0;                                                                              \
    va_list rest;                                                                              \
    if (flags & (O_CREAT | __O_TMPFILE)) {                                                     \
      va_start(rest, flags);                                                                   \
      mode = va_arg(rest, int);                                                                \
      va_end(rest);                                                                            \
    }                                                                                          \
    if (!next) next = next_of(#name);                                                          \
    if (!(flags & (O_WRONLY | O_RDWR))) return next(pass path, flags, mode);                   \
    STOPPED(int, "open", folder, path, next(pass path, flags, mode));                          \
  }
#define FIRST_FOLDER int folder,
#define PASS_FOLDER folder,
#define NOTHING
OPEN(open, NOTHING, AT_FDCWD, NOTHING)
OPEN(open64, NOTHING, AT_FDCWD, NOTHING)
OPEN(openat, FIRST_FOLDER, folder, PASS_FOLDER)
OPEN(openat64, FIRST_FOLDER, folder, PASS_FOLDER)

#define OF_FILE(name, call)                                   \
  int name(int file) {                                        \
    static int (*next)(int);                                  \
    if (!next) next = next_of(#name);                         \
    STOPPED(int, call, file, NULL, next(file));               \
  }
OF_FILE(fsync, "fsync")
OF_FILE(fdatasync, "fsync")

#define TRUNCATE(name, offset_type)                           \
  int name(int file, offset_type size) {                      \
    static int (*next)(int, offset_type);                     \
    if (!next) next = next_of(#name);                         \
    STOPPED(int, "truncate", file, NULL, next(file, size));   \
  }
TRUNCATE(ftruncate, off_t)
TRUNCATE(ftruncate64, off64_t)

int rename(const char *from, const char *to) {
  static int (*next)(const char *, const char *);
  if (!next) next = next_of("rename");
  STOPPED(int, "rename", AT_FDCWD, to, next(from, to));
}

int renameat(int from_folder, const char *from, int to_folder, const char *to) {
  static int (*next)(int, const char *, int, const char *);
  if (!next) next = next_of("renameat");
  STOPPED(int, "rename", to_folder, to, next(from_folder, from, to_folder, to));
}

int link(const char *from, const char *to) {
  static int (*next)(const char *, const char *);
  if (!next) next = next_of("link");
  STOPPED(int, "link", AT_FDCWD, to, next(from, to));
}

int mkdir(const char *path, mode_t mode) {
  static int (*next)(const char *, mode_t);
  if (!next) next = next_of("mkdir");
  STOPPED(int, "mkdir", AT_FDCWD, path, next(path, mode));
}

int unlink(const char *path) {
  static int (*next)(const char *);
  if (!next) next = next_of("unlink");
  STOPPED(int, "unlink", AT_FDCWD, path, next(path));
}
