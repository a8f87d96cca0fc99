#include "dist/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <string_view>

namespace longhaul::dist {
namespace {

constexpr int kSystemErrorExit = 3;

/// The number after `before` in `text`.
std::optional<int> number_after(std::string_view text, std::string_view before) {
  const std::size_t at = text.find(before);
  if (at == std::string_view::npos) {
    return std::nullopt;
  }
  int number = 0;
  const std::string_view rest = text.substr(at + before.size());
  const auto result = std::from_chars(rest.data(), rest.data() + rest.size(), number);
  return result.ec == std::errc() ? std::optional<int>(number) : std::nullopt;
}

/// mpirun's word on the first rank that a signal ended: `process rank 1 with PID … exited on signal
/// 9 (Killed)`.
struct SignalNote {
  std::int64_t rank = 0;
  int signal = 0;
};
std::optional<SignalNote> find_signal_note(const StarterEnd& starter) {
  std::string all;
  for (const std::string& line : starter.output) {
    all += line + ' ';
  }
  const std::optional<int> rank = number_after(all, "process rank ");
  const std::optional<int> signal = number_after(all, "exited on signal ");
  if (!rank || !signal) {
    return std::nullopt;
  }
  return SignalNote{.rank = *rank, .signal = *signal};
}

/// The rank that mpirun names as the first one with an exit status of its own: `Process name:
/// [[356,1],1]`.
std::optional<std::int64_t> find_exit_note(const StarterEnd& starter) {
  for (const std::string& line : starter.output) {
    const std::size_t at = line.find("Process name: [[");
    if (at != std::string::npos) {
      return number_after(std::string_view(line).substr(at), "],");
    }
  }
  return std::nullopt;
}

std::string describe_death(int signal) {
  if (signal == 0) {
    return "the process ended without saying why";
  }
  return fmt::format("the process was ended by signal {} ({})", signal, strsignal(signal));
}

Verdict death_verdict(const RankEnd& rank, const StarterEnd& starter) {
  int signal = 0;
  if (const auto note = find_signal_note(starter); note && note->rank == rank.rank) {
    signal = note->signal;
  } else if (!note && starter.status > 128) {
    signal = starter.status - 128;
  }
  constexpr int kKill = 9;
  std::string line = fmt::format("{}: {}", rank.place, describe_death(signal));
  if (signal == kKill) {
    line += ". If nobody killed it, the machine ran out of memory: see `longhaul plan`";
  }
  return {.exit_code = kSystemErrorExit, .error_lines = {line}};
}

Verdict starter_verdict(const StarterEnd& starter) {
  const auto is_word = [](const std::string& line) {
    return line.find_first_not_of("-= \t\r") != std::string::npos;
  };
  std::string said;
  for (const std::string& line : starter.output) {
    if (is_word(line)) {
      said += (said.empty() ? "" : " ") + line.substr(line.find_first_not_of(" \t"));
    }
  }
  constexpr std::size_t kLongest = 600;
  if (said.size() > kLongest) {
    said = said.substr(0, kLongest) + " …";
  }
  const base::Problem problem{
      .where = starter.name,
      .what = fmt::format("could not run the ranks (exit status {}): {}", starter.status,
                          said.empty() ? "it said nothing" : said)};
  return {.exit_code = kSystemErrorExit, .error_lines = {problem.line()}};
}

/// What is known when ranks died before all had come up, which are not there to tell: mpirun signals
/// every rank once one has died.
std::optional<Verdict> early_death_verdict(const std::vector<RankEnd>& ranks,
                                           const StarterEnd& starter, const RankEnd* first) {
  const auto note = find_signal_note(starter);
  const auto exit_note = find_exit_note(starter);
  std::string missing;
  for (const RankEnd& rank : ranks) {
    if (rank.has_come_up) {
      continue;
    }
    if (note && note->rank == rank.rank) {
      return death_verdict(rank, starter);
    }
    if (exit_note == rank.rank) {
      return starter_verdict(starter);
    }
    missing += fmt::format("{}rank {}", missing.empty() ? "" : ", ", rank.rank);
  }
  const bool is_known = note || exit_note || first == nullptr || first->outcome == Outcome::kError;
  if (missing.empty() || is_known) {
    return std::nullopt;
  }
  const base::Problem problem{
      .where = starter.name,
      .what = fmt::format("a rank died while starting (not yet up: {}; exit status {})", missing,
                          starter.status)};
  return Verdict{.exit_code = kSystemErrorExit, .error_lines = {problem.line()}};
}

/// The rank whose own error or death came first; mpirun's word decides between deaths seen
/// together.
const RankEnd* first_at_fault(const std::vector<RankEnd>& ranks, const StarterEnd& starter) {
  const auto note = find_signal_note(starter);
  const auto time_of = [&](const RankEnd& rank) -> std::optional<std::int64_t> {
    if (rank.outcome == Outcome::kError) {
      return rank.outcome_ns;
    }
    constexpr std::int64_t kSeenTogether = 200'000'000;
    const bool is_named = note && note->rank == rank.rank;
    return rank.died_ns ? std::optional(*rank.died_ns - (is_named ? kSeenTogether : 0))
                        : std::nullopt;
  };
  const RankEnd* first = nullptr;
  for (const RankEnd& rank : ranks) {
    const auto time = time_of(rank);
    if (time && (first == nullptr || *time < *time_of(*first))) {
      first = &rank;
    }
  }
  return first;
}

}  // namespace

Verdict judge(const std::vector<RankEnd>& ranks, const StarterEnd& starter) {
  const RankEnd* first = first_at_fault(ranks, starter);
  if (const auto early = early_death_verdict(ranks, starter, first)) {
    return *early;
  }
  if (first != nullptr) {
    if (first->outcome == Outcome::kError) {
      return {.exit_code = first->exit_code, .error_lines = first->lines};
    }
    return death_verdict(*first, starter);
  }
  for (const RankEnd& rank : ranks) {
    if (!rank.stuck.empty()) {
      return {.exit_code = kSystemErrorExit,
              .error_lines = {fmt::format("{}: {}", rank.place, rank.stuck)}};
    }
  }
  const RankEnd* complaint = nullptr;
  int exit_code = 0;
  bool all_finished = true;
  for (const RankEnd& rank : ranks) {
    if (rank.outcome == Outcome::kPeerError &&
        (complaint == nullptr || rank.outcome_ns < complaint->outcome_ns)) {
      complaint = &rank;
    }
    all_finished = all_finished && rank.outcome == Outcome::kFinished;
    exit_code = std::max(exit_code, rank.exit_code);
  }
  if (complaint != nullptr) {
    return {.exit_code = complaint->exit_code, .error_lines = complaint->lines};
  }
  if (!all_finished || (exit_code == 0 && starter.status != 0)) {
    return starter_verdict(starter);
  }
  return {.exit_code = exit_code, .error_lines = {}};
}

}  // namespace longhaul::dist
