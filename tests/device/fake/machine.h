// What the fake driver, the fake NVML and the fake nvidia-smi say of the machine: files beside the libraries.
//   cuda.txt   newest CUDA release as a number (13000), then what cuInit returns
//   gpus.txt   a line a GPU, in the order of its slots: name|uuid, 32 digits|major|minor|bytes|bytes that others hold
//   load.txt   a line a GPU: per cent busy, then pid:bytes of each process
// Functions are static: an inline one's variables would be shared by all libraries of a process, whichever folder.
#pragma once
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

struct Gpu {
  std::string name, uuid;
  int major, minor;
  uint64_t bytes, taken;
  int slot;
};

static std::string beside(const char *file) {
  static int here;
  Dl_info info;
  dladdr(&here, &info);
  const std::string path = info.dli_fname;
  return path.substr(0, path.rfind('/') + 1) + file;
}

static std::vector<std::string> split(const std::string &text, char at) {
  std::vector<std::string> words;
  std::stringstream stream(text);
  for (std::string word; std::getline(stream, word, at);) words.push_back(word);
  return words;
}

static std::vector<Gpu> all_gpus() {
  std::vector<Gpu> found;
  std::ifstream file(beside("gpus.txt"));
  for (std::string line; std::getline(file, line);) {
    const auto w = split(line, '|');
    found.push_back({w[0], w[1], std::stoi(w[2]), std::stoi(w[3]), std::stoull(w[4]), std::stoull(w[5]),
                     (int)found.size()});
  }
  return found;
}

static std::string written(const std::string &digits) {
  std::string text = "GPU-";
  for (int i = 0; i < 32; ++i) text += (i == 8 || i == 12 || i == 16 || i == 20) ? std::string("-") + digits[i] : std::string(1, digits[i]);
  return text;
}
