#include "dist/key_store.h"

#include <c10/util/Logging.h>
#include <fmt/format.h>

#include <exception>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "base/error.h"

namespace longhaul::dist {
namespace {

/// libtorch's texts carry a stack trace below the first line.
std::string first_line(const std::exception& error) {
  const std::string text = error.what();
  return text.substr(0, text.find('\n'));
}

class TcpKeyStore final : public KeyStore {
 public:
  TcpKeyStore(const MeetingPlace& place, std::int64_t rank, std::chrono::milliseconds deadline)
      : place_(place) {
    FLAGS_caffe2_log_level =
        c10::GLOG_ERROR;  // its warnings come with stack traces; errors are thrown
    c10d::TCPStoreOptions options;
    options.port = static_cast<std::uint16_t>(place.port);
    options.isServer = rank == 0 && !place.has_server;
    options.waitWorkers = false;
    options.timeout = deadline;
    try {
      store_ = std::make_unique<c10d::TCPStore>(place.host, options);
    } catch (const std::exception& error) {
      throw base::SystemError(
          {.where = where(),
           .what = (options.isServer ? "cannot be served: " : "cannot be reached: ") +
                   first_line(error),
           .hint = "MASTER_ADDR and MASTER_PORT name a free port of the machine of rank 0"});
    }
  }

  void set(std::string_view key, std::string_view value) override {
    try {
      store_->set(full(key), std::vector<std::uint8_t>(value.begin(), value.end()));
    } catch (const std::exception& error) {
      fail(key, error);
    }
  }

  std::string get(std::string_view key) override {
    try {
      const std::vector<std::uint8_t> value = store_->get(full(key));
      return {value.begin(), value.end()};
    } catch (const std::exception& error) {
      fail(key, error);
    }
  }

 private:
  [[nodiscard]] std::string where() const {
    return fmt::format("rendezvous at {}:{}", place_.host, place_.port);
  }
  [[nodiscard]] std::string full(std::string_view key) const {
    return fmt::format("longhaul/{}/{}", place_.round, key);
  }
  [[noreturn]] void fail(std::string_view key, const std::exception& error) const {
    throw base::SystemError(
        {.where = where(),
         .what = fmt::format("no word of the other ranks ({}): {}", key, first_line(error))});
  }

  MeetingPlace place_;
  std::unique_ptr<c10d::TCPStore> store_;
};

}  // namespace

std::unique_ptr<KeyStore> open_key_store(const MeetingPlace& place, std::int64_t rank,
                                         std::chrono::milliseconds deadline) {
  return std::make_unique<TcpKeyStore>(place, rank, deadline);
}

}  // namespace longhaul::dist
