// Where in the source something happens, and what the emulator says when it is wrong.
#pragma once

#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <string>

namespace simt::emulator {

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

}  // namespace simt::emulator
