// Where the ranks of a job find one another before they can communicate: libtorch's TCPStore, with
// rank 0 or torchrun's agent as its server.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "dist/rendezvous.h"

namespace longhaul::dist {

class KeyStore {
 public:
  KeyStore() = default;
  KeyStore(const KeyStore&) = delete;
  KeyStore& operator=(const KeyStore&) = delete;
  virtual ~KeyStore() = default;

  /// Binary values of any length.
  virtual void set(std::string_view key, std::string_view value) = 0;
  /// Waits for the key. SystemError when it is not there in time.
  virtual std::string get(std::string_view key) = 0;
};

/// Connects rank `rank` with the store of `place`; rank 0 serves it unless torchrun does.
///
/// Order   every rank of the job calls it; returns once the server answers
/// Errors  SystemError naming host and port when it is not reached within `deadline`
std::unique_ptr<KeyStore> open_key_store(const MeetingPlace& place, std::int64_t rank,
                                         std::chrono::milliseconds deadline);

}  // namespace longhaul::dist
