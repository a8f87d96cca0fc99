// What leaves for the host comes back as it was, and what is still travelling is not touched: a
// copier that copies late, as a GPU does, finds every hand-over that comes too early.
#include "ops/host_slots.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "ops/room.h"

namespace longhaul::ops {
namespace {

/// Copies only when somebody waits for the mark, and counts memory.
class LateCopier final : public HostCopier {
 public:
  struct Record {
    std::int64_t live_bytes = 0;
    std::int64_t limit_bytes = std::int64_t{1} << 40;
    int waits = 0;
    std::vector<std::string> log;
  };
  explicit LateCopier(Record& record) : record_(&record), real_(cpu_host_copier()) {}

  void* allocate(std::int64_t bytes) override {
    if (record_->live_bytes + bytes > record_->limit_bytes) {
      return nullptr;
    }
    record_->live_bytes += bytes;
    void* block = real_->allocate(bytes);
    sizes_.emplace_back(block, bytes);
    return block;
  }
  void release(void* block) override {
    const auto found = std::find_if(sizes_.begin(), sizes_.end(),
                                    [&](const auto& entry) { return entry.first == block; });
    record_->live_bytes -= found->second;
    sizes_.erase(found);
    real_->release(block);
  }
  Mark copy_out(std::span<const HostCopy> copies) override {
    record_->log.emplace_back("out");
    return later([this, list = std::vector<HostCopy>(copies.begin(), copies.end())] {
      real_->copy_out(list);
    });
  }
  Mark copy_in(std::span<const HostCopy> copies, const Mark& after) override {
    record_->log.emplace_back("in");
    return later([this, after, list = std::vector<HostCopy>(copies.begin(), copies.end())] {
      run(after);
      real_->copy_in(list, nullptr);
    });
  }
  void wait(const Mark& mark) override {
    ++record_->waits;
    run(mark);
  }

 private:
  using Work = std::function<void()>;
  static Mark later(Work work) { return std::make_shared<Work>(std::move(work)); }
  static void run(const Mark& mark) {
    auto& work = *static_cast<Work*>(mark.get());
    if (work) {
      std::exchange(work, nullptr)();
    }
  }

  Record* record_;
  std::unique_ptr<HostCopier> real_;
  std::vector<std::pair<void*, std::int64_t>> sizes_;
};

at::Tensor pitched(std::int64_t rows, std::int64_t columns, std::int64_t room) {
  const at::Tensor matrix = empty_with_room(rows, columns, room, at::kFloat);
  with_room(matrix, room).fill_(-1);
  matrix.copy_(at::randn({rows, columns}));
  return matrix;
}

TEST(HostSlots, SeesLongRunsOfMemory) {
  EXPECT_EQ(rows_of(at::zeros({3, 5})), (TensorRows{1, 60, 60}));
  EXPECT_EQ(rows_of(at::zeros({5, 3}).t()), (TensorRows{1, 60, 60}));
  EXPECT_EQ(rows_of(empty_with_room(4, 32, 2, at::kFloat)), (TensorRows{1, 3 * 136 + 128, 536}));
  EXPECT_EQ(rows_of(empty_with_room(4, 32, 8, at::kFloat)), (TensorRows{4, 128, 160}));
  EXPECT_EQ(rows_of(at::zeros({0, 5})), TensorRows{});
  EXPECT_THROW(rows_of(at::zeros({4, 8}).t().narrow(0, 0, 3)), base::InternalError);
}

TEST(HostSlots, BringBackEveryLayoutAsItWas) {
  at::manual_seed(1);
  LateCopier::Record record;
  HostSlots slots(std::make_unique<LateCopier>(record), {});
  slots.begin(7);
  const std::vector<at::Tensor> tensors = {
      at::randn({7, 5}),  at::Tensor(),     at::randn({3, 7}).t(),
      pitched(7, 32, 2),  pitched(7, 8, 8), at::randn({7, 4}).to(at::kBFloat16),
      at::empty({0, 12}), pitched(1, 16, 8)};
  std::vector<at::Tensor> copies;
  for (const at::Tensor& tensor : tensors) {
    copies.push_back(tensor.defined() ? tensor.clone() : at::Tensor());
  }
  const HostSlots::Handle first = slots.put(tensors);
  for (int other = 0; other < 2; ++other) {
    slots.put({at::zeros({3})});
  }
  slots.settle();
  slots.prefetch(first);
  const std::vector<at::Tensor> got = slots.take(first);
  ASSERT_EQ(got.size(), tensors.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].defined(), copies[i].defined()) << i;
    if (got[i].defined()) {
      EXPECT_TRUE(got[i].equal(copies[i])) << i;
      EXPECT_EQ(got[i].strides(), tensors[i].strides()) << i;
      EXPECT_TRUE(got[i].numel() == 0 || got[i].data_ptr() != tensors[i].data_ptr()) << i;
    }
  }
  with_room(got[7], 8).zero_();  // the room behind the last row is there, too
}

TEST(HostSlots, FreeTheDeviceOfAllGroupsButTheLastOnesThatLeave) {
  LateCopier::Record record;
  HostSlots slots(std::make_unique<LateCopier>(record), {});
  slots.begin(1);
  std::vector<c10::weak_intrusive_ptr<c10::TensorImpl>> watched;
  for (int layer = 0; layer < 4; ++layer) {
    slots.settle();
    // Of the earlier ones only the last is still on its way.
    for (int earlier = 0; earlier + 1 < layer; ++earlier) {
      EXPECT_TRUE(watched[static_cast<std::size_t>(earlier)].expired());
    }
    at::Tensor tensor = at::full({4}, layer);
    watched.emplace_back(tensor.getIntrusivePtr());
    slots.put({std::move(tensor)});
  }
  EXPECT_FALSE(watched[2].expired());
  EXPECT_FALSE(watched[3].expired());
  EXPECT_EQ(record.waits, 2);  // nobody waited for what may travel on
}

TEST(HostSlots, GiveBackWhatHasNotLeftWithoutFetchingIt) {
  LateCopier::Record record;
  HostSlots slots(std::make_unique<LateCopier>(record), {});
  slots.begin(1);
  const at::Tensor tensor = at::ones({4});
  const HostSlots::Handle handle = slots.put({tensor});
  slots.prefetch(handle);
  EXPECT_EQ(slots.take(handle).front().data_ptr(), tensor.data_ptr());
  EXPECT_EQ(record.log, std::vector<std::string>{"out"});
  EXPECT_EQ(record.waits, 1);  // its owner may write to it now
  EXPECT_THROW(slots.take(handle), base::InternalError);
}

/// One row of three groups.
void run_row(HostSlots& slots, std::int64_t tokens) {
  slots.begin(tokens);
  std::vector<HostSlots::Handle> handles;
  for (const std::int64_t columns : {3000, 500, 3000}) {
    slots.settle();
    handles.push_back(slots.put({at::full({tokens, columns}, static_cast<float>(tokens))}));
  }
  for (std::size_t i = handles.size(); i-- > 0;) {
    const at::Tensor got = slots.take(handles[i]).front();
    EXPECT_EQ(got.size(0), tokens);
    EXPECT_TRUE(got.eq(static_cast<float>(tokens)).all().item<bool>());
  }
}

TEST(HostSlots, ReuseTheirBlocksFromRowToRow) {
  LateCopier::Record record;
  HostSlots slots(std::make_unique<LateCopier>(record), {.largest_row = 64});
  run_row(slots, 40);
  const std::int64_t bytes = slots.host_bytes();
  EXPECT_EQ(slots.num_allocations(), 3);
  EXPECT_EQ(record.live_bytes, bytes);
  for (const std::int64_t tokens : {64, 1, 63, 64}) {
    run_row(slots, tokens);
  }
  EXPECT_EQ(slots.num_allocations(), 3);
  EXPECT_EQ(slots.host_bytes(), bytes);
  EXPECT_LT(bytes, (6500 * 64 * 4) + 3 * (100 << 10));
}

TEST(HostSlots, GrowWithTheRowsWhenNobodyPlannedThem) {
  LateCopier::Record record;
  {
    HostSlots slots(std::make_unique<LateCopier>(record), {});
    run_row(slots, 40);
    run_row(slots, 80);
    // The smaller blocks made room, all but one that another group found large enough.
    EXPECT_LT(slots.host_bytes(), 6500 * 80 * 4 * 5 / 4 + 3 * (100 << 10));
    EXPECT_EQ(record.live_bytes, slots.host_bytes());
  }
  EXPECT_EQ(record.live_bytes, 0);
}

TEST(HostSlots, SurviveARowThatWasNotFinished) {
  LateCopier::Record record;
  HostSlots slots(std::make_unique<LateCopier>(record), {});
  slots.begin(4);
  slots.put({at::ones({4, 3000})});
  slots.prefetch(slots.put({at::ones({4, 3000})}));
  slots.put({at::ones({4, 500})});
  const std::int64_t made = slots.num_allocations();
  run_row(slots, 4);
  EXPECT_EQ(slots.num_allocations(), made);
}

TEST(HostSlots, SayWhatWasPlannedWhenTheHostHasNoMore) {
  LateCopier::Record record;
  record.limit_bytes = 100'000;
  HostSlots slots(std::make_unique<LateCopier>(record), {.planned_bytes = 123'456});
  slots.begin(4);
  slots.put({at::ones({4, 1000})});
  try {
    slots.put({at::ones({4, 9000})});
    FAIL() << "no error";
  } catch (const base::SystemError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("123456 bytes are planned"), std::string::npos) << text;
    EXPECT_NE(text.find("--host_memory_limit"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace longhaul::ops
