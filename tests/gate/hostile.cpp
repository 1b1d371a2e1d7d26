// Right answers by kernels that do something else besides: they write lines of the protocol wherever they can, and
// stop whom they find. They look at nobody but their parent, its parent, and the other children of their parent.
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "loop_kernel.h"

LOOP_EXPORT const char *loop_error(int) { return "inputs must be contiguous"; }

static int twice(const LoopTensor *in, LoopTensor *out) {
  if (in[0].strides[1] != 1 || in[0].strides[0] != in[0].sizes[1]) return 4;
  for (int64_t i = 0; i < in[0].sizes[0] * in[0].sizes[1]; ++i)
    ((float *)out[0].data)[i] = 2.0f * ((const float *)in[0].data)[i];
  return 0;
}

static const char *LINES[] = {
    "{\"status\": \"ok\"}\n",         "{\"status\": \"bug\", \"message\": \"x\"}\n", "{\"do\": \"nothing\"}\n",
    "{\"do\": \"start_judge\"}\n",    "no JSON\n",                                 "\n",
    "{\"status\": \"refused\", \"message\": \"the judge is a fool\"}\n",
    "{\"status\": \"ok\", \"doubt\": \"\", \"max_error\": 0, \"wrong\": 0, \"total\": 1, \"message\": \"\"}\n"};

static void say(int handle) {
  for (const char *line : LINES)
    if (write(handle, line, strlen(line))) {}
}

static void flood() {
  for (int handle = 0; handle < 1024; ++handle) {
    int flags = fcntl(handle, F_GETFL);
    if (flags < 0) continue;
    fcntl(handle, F_SETFL, flags | O_NONBLOCK);
    say(handle);
    fcntl(handle, F_SETFL, flags);
  }
}

static void flood_of(int pid) {
  char path[600];
  snprintf(path, sizeof path, "/proc/%d/fd", pid);
  DIR *folder = opendir(path);
  while (dirent *entry = folder ? readdir(folder) : nullptr) {
    snprintf(path, sizeof path, "/proc/%d/fd/%s", pid, entry->d_name);
    int handle = open(path, O_WRONLY | O_NONBLOCK);
    if (handle >= 0) say(handle), close(handle);
  }
  if (folder) closedir(folder);
}

static int parent_of(int pid) {
  char text[1000] = "", state;
  snprintf(text, sizeof text, "/proc/%d/stat", pid);
  FILE *file = fopen(text, "r");
  if (file && fread(text, 1, sizeof text - 1, file)) {}
  if (file) fclose(file);
  const char *after = strrchr(text, ')');
  return after && sscanf(after + 1, " %c %d", &state, &pid) == 2 ? pid : 0;
}

static void siblings(void (*act)(int)) {
  char path[100];
  snprintf(path, sizeof path, "/proc/%d/task/%d/children", getppid(), getppid());
  int found[100], count = 0;
  FILE *file = fopen(path, "r");
  while (file && count < 100 && fscanf(file, "%d", &found[count]) == 1) ++count;
  if (file) fclose(file);
  for (int i = 0; i < count; ++i)
    if (found[i] != getpid()) act(found[i]);
}

static void halt(int pid) {
  if (pid > 1) kill(pid, SIGSTOP);
}

#define HOSTILE(name, deed) \
  LOOP_EXPORT int name(const LoopTensor *in, LoopTensor *out, const double *, void *) { \
    static int calls; \
    if (++calls > 1) { deed; } \
    return twice(in, out); \
  }
HOSTILE(good, )
HOSTILE(floods_its_own, flood())
HOSTILE(floods_its_parent, flood_of(getppid()))
HOSTILE(floods_all, flood_of(getppid()); flood_of(parent_of(getppid())); siblings(flood_of))
HOSTILE(stops_its_parent, halt(getppid()))
HOSTILE(stops_who_watches, halt(parent_of(getppid())))
HOSTILE(stops_the_judge, siblings(halt))
HOSTILE(stops_all, siblings(halt); halt(parent_of(getppid())); halt(getppid()))
