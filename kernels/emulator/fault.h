// Where in the source something happens, and what the emulator says when it is wrong.
#pragma once

#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <string>

// GCC makes the statics of inline code one to a process, over the borders of libraries: two emulated ones would run
// each other's blocks. What is hidden is a library's own.
#define SIMT_PRIVATE __attribute__((visibility("hidden")))

namespace simt {
namespace emulator SIMT_PRIVATE {

// A place in a kernel's source. As a default argument it is the place of the call.
struct Where {
  const char *file;
  int line;

  static constexpr Where here(const char *file = __builtin_FILE(), int line = __builtin_LINE()) { return {file, line}; }

  std::string text() const {
    const char *slash = std::strrchr(file, '/');
    return std::string(slash ? slash + 1 : file) + ":" + std::to_string(line);
  }
  bool operator==(const Where &other) const {
    return line == other.line && (file == other.file || std::strcmp(file, other.file) == 0);
  }
  bool operator!=(const Where &other) const { return !(*this == other); }
};

__attribute__((format(printf, 1, 2))) inline std::string format(const char *pattern, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, pattern);
  std::vsnprintf(text, sizeof text, pattern, arguments);
  va_end(arguments);
  return text;
}

}  // namespace emulator
}  // namespace simt
