// Lines for people. The library never prints by itself: it hands lines to the sink that the command
// installs (rank 0 prints, other ranks drop), so tests can capture them.
#pragma once

#include <functional>
#include <string>

namespace longhaul::base {

using LogSink = std::function<void(const std::string& line)>;

/// Installs the process-wide sink; an empty function drops every line (the default).
void set_log_sink(LogSink sink);
/// Hands one line (without newline) to the sink.
void log_line(const std::string& line);

}  // namespace longhaul::base
