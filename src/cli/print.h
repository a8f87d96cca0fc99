// Standard output and standard error: who may lose a line, and who may not.
#pragma once

#include <cstdio>
#include <string_view>

namespace longhaul::cli {

/// Writes and flushes. What cannot be written (the reader has gone, the terminal was closed, a disk
/// is full) is dropped: for commands whose results are files, which no line is worth ending.
void print_text(std::FILE* stream, std::string_view text);

/// For commands whose result is their output: SystemError unless all of it has been written.
void flush_output();

/// The error of a write to standard output that has just failed (errno says why).
[[noreturn]] void fail_output();

}  // namespace longhaul::cli
