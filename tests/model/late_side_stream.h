// Side streams for tests on the CPU: as late as a GPU's may be, or faulty on purpose.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>

#include "ops/side_stream.h"

namespace longhaul::testing {

/// Does work only when somebody waits for a mark behind it, so that a wait that is forgotten reads
/// what was there before.
class LateSideStream : public ops::SideStream {
 public:
  void run(const std::function<void()>& work) override {
    waiting_.push_back(work);
    ++given_;
  }
  Mark mark() override { return std::make_shared<std::int64_t>(given_); }
  void wait(const Mark& mark) override {
    while (done_ < *static_cast<const std::int64_t*>(mark.get())) {
      waiting_.front()();
      waiting_.pop_front();
      ++done_;
    }
  }

 private:
  std::deque<std::function<void()>> waiting_;
  std::int64_t given_ = 0;
  std::int64_t done_ = 0;
};

/// Never waits: all work comes too late.
class ForgetfulSideStream final : public LateSideStream {
 public:
  void wait(const Mark& /*mark*/) override {}
};

/// Leaves out one piece of work, counted from 0; all ranks leave out the same.
class SkippingSideStream final : public ops::SideStream {
 public:
  explicit SkippingSideStream(std::int64_t skipped) : skipped_(skipped) {}
  void run(const std::function<void()>& work) override {
    if (count_++ != skipped_) {
      work();
    }
  }
  Mark mark() override { return nullptr; }
  void wait(const Mark& /*mark*/) override {}

 private:
  std::int64_t skipped_;
  std::int64_t count_ = 0;
};

}  // namespace longhaul::testing
