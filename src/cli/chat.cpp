#include "cli/chat.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/json.h"
#include "cli/interrupt.h"

namespace longhaul::cli {
namespace {

/// Lines of standard input; unlike std::getline it comes back when a signal arrives.
class LineReader {
 public:
  /// The next line without its end; nothing at the end of the input or after a signal.
  std::optional<std::string> next(const std::string& prompt) {
    if (is_terminal_) {
      fmt::print("{}", prompt);
      std::fflush(stdout);
    }
    while (true) {
      const std::size_t end = buffer_.find('\n');
      if (end != std::string::npos) {
        return take(end, end + 1);
      }
      if (!input_comes()) {
        return std::nullopt;
      }
      std::array<char, 4096> bytes{};
      const ssize_t count = ::read(STDIN_FILENO, bytes.data(), bytes.size());
      if (count < 0 && errno == EINTR && InterruptGuard::pending() == 0) {
        continue;
      }
      if (count <= 0) {
        return buffer_.empty() || count < 0 ? std::nullopt
                                            : std::optional(take(buffer_.size(), buffer_.size()));
      }
      buffer_.append(bytes.data(), static_cast<std::size_t>(count));
    }
  }
  [[nodiscard]] bool is_terminal() const { return is_terminal_; }

 private:
  /// Waits until there is something to read; false after a signal. One that arrives just before the
  /// wait does not end it, so each wait is short.
  static bool input_comes() {
    constexpr int kWaitMs = 100;
    pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
    while (InterruptGuard::pending() == 0) {
      if (::poll(&input, 1, kWaitMs) > 0) {
        return true;
      }
    }
    return false;
  }

  std::string take(std::size_t size, std::size_t erased) {
    std::string line = buffer_.substr(0, size);
    buffer_.erase(0, erased);
    if (!line.empty() && line.back() == '\r') {
      line.pop_back();
    }
    return line;
  }

  std::string buffer_;
  bool is_terminal_ = ::isatty(STDIN_FILENO) == 1;
};

class Chat {
 public:
  explicit Chat(const ChatParts& parts) : parts_(parts) {}

  int run() {
    if (lines_.is_terminal()) {
      fmt::print(
          "Commands: exit, clear (forget the conversation), reset-system (new system text). "
          "Ctrl-C ends an answer.\n");
    }
    while (true) {
      const auto line = lines_.next("<<< ");
      if (!line || *line == "exit" || *line == "quit") {
        break;
      }
      if (*line == "clear") {
        conversation_ = {};
        say("(conversation cleared)");
      } else if (*line == "reset-system") {
        reset_system();
      } else if (!line->empty()) {
        answer(*line);
      }
      if (InterruptGuard::pending() != 0) {
        break;
      }
    }
    const int signal = InterruptGuard::pending();
    if (signal != 0 || lines_.is_terminal()) {
      fmt::print("\n");
    }
    return signal == 0 ? 0 : 128 + signal;
  }

 private:
  void say(const std::string& line) {
    fmt::print("{}\n", line);
    std::fflush(stdout);
  }
  static void complain(const base::UserError& error) {
    fmt::print(stderr, "longhaul: error: {}\n", error.problems().front().line());
  }

  void reset_system() {
    if (const auto text = lines_.next("system text (empty: the template's) <<< ")) {
      if (!base::is_valid_utf8(*text)) {
        complain(base::UserError(
            base::Problem{.where = "chat", .what = "the system text is not valid UTF-8"}));
        return;
      }
      parts_.encoder.set_system(text->empty() ? std::nullopt : text);
      conversation_ = {};
      say("(system text set, conversation cleared)");
    }
  }

  void answer(const std::string& question) {
    if (!base::is_valid_utf8(question)) {
      complain(base::UserError(
          base::Problem{.where = "chat", .what = "the question is not valid UTF-8"}));
      return;
    }
    conversation_.messages.push_back(
        {.role = text::Role::kUser, .content = question, .loss = std::nullopt});
    std::vector<std::int32_t> prompt = parts_.encoder.encode(conversation_);
    if (const std::int64_t gone = infer::shorten_prompt(prompt, parts_.policy); gone > 0) {
      say(fmt::format("(the conversation is too long: its first {} tokens were left out)", gone));
    }
    const auto tokens = static_cast<std::int64_t>(prompt.size());
    try {
      if (tokens > parts_.policy.max_length || tokens >= parts_.policy.max_tokens) {
        infer::refuse_long_prompt("chat", tokens, parts_.policy);
      }
      generate(prompt);
    } catch (const base::UserError& error) {
      complain(error);
      conversation_.messages.pop_back();
      say("(the question was not asked; clear forgets the conversation)");
    }
  }

  void generate(const std::vector<std::int32_t>& prompt) {
    infer::GenerationHooks hooks;
    hooks.interrupted = [] { return InterruptGuard::pending() != 0; };
    if (parts_.stream) {
      hooks.on_text = [](std::string_view text) {
        fmt::print("{}", text);
        std::fflush(stdout);
      };
    }
    const infer::Answer answer =
        infer::generate(parts_.decoder, parts_.encoder.tokenizer(), prompt, parts_.stop,
                        parts_.sampling, parts_.limits, 0, hooks);
    say(parts_.stream ? "" : answer.text);
    if (answer.reason == infer::StopReason::kNewTokens) {
      say("(stopped after --max_new_tokens)");
    } else if (answer.reason == infer::StopReason::kModelLength) {
      say("(stopped: the model's positions are used up)");
    } else if (answer.reason == infer::StopReason::kInterrupted && lines_.is_terminal() &&
               InterruptGuard::pending() == SIGINT) {
      say("(interrupted)");
      InterruptGuard::clear();
    }
    conversation_.messages.push_back(
        {.role = text::Role::kAssistant, .content = answer.text, .loss = std::nullopt});
  }

  ChatParts parts_;
  LineReader lines_;
  text::Conversation conversation_;
};

}  // namespace

int run_chat(const ChatParts& parts) { return Chat(parts).run(); }

}  // namespace longhaul::cli
