#include "ops/attention_calls.h"

#include <algorithm>
#include <bit>

#include "base/ceil_div.h"
#include "config/kernel_memory.h"

namespace longhaul::ops {
namespace {

/// Milliseconds of forward and backward together, 28/4 heads of 128, 65,536 tokens in documents of a
/// mean length (log-normal), on an H200 with cuDNN 9.19:
///
///   mean length, documents                   512, 111  2,048, 28  8,192, 10  16,384, 6  32,768, 3
///   FlashAttention-2                            10.68      25.88      43.71      59.92     120.49
///   cuDNN, a call per document                  27.78      17.81      28.33      37.85      74.81
///   both, cut at 2,048 tokens                   11.09      18.92      26.76      36.56      73.14
///   cuDNN, all documents in one call             6.78      14.89      26.11      35.90      71.44
///   cuDNN, similar documents in one call         6.74      14.66      25.63      35.99      73.68
///
/// longhaul bench attention --shape qwen2.5-7b --lengths 65536 --packing_mean 2048
///
/// So: cuDNN's packed calls. Similar lengths share one because it works in memory for as many rows
/// as documents times the longest of them.

/// Without packed calls: from this length on a document gets a cuDNN call of its own; below it the
/// launches would cost more than FlashAttention-2's lower rate over all short documents together.
constexpr std::int64_t kOwnCallTokens = 2048;

/// cuDNN builds a kernel for a length in 0.05 s: whole thousands are common (rows of the longest
/// length allowed), other lengths share the kernel of the next thousand, which costs up to 5 %.
constexpr std::int64_t kLengthStep = 1024;
constexpr std::int64_t kShortestLength = 128;

std::int64_t power_of_two_from(std::int64_t value) {
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(value)));
}

std::int64_t rounded_length(std::int64_t length) {
  return length <= kLengthStep ? std::max(kShortestLength, power_of_two_from(length))
                               : base::round_up(length, kLengthStep);
}

/// At most an eighth longer: documents that share a row come in more lengths than rows do.
std::int64_t coarse_length(std::int64_t length) {
  const std::int64_t step = std::max(kLengthStep, power_of_two_from(length + 1) / 16);
  return length <= kLengthStep ? rounded_length(length) : base::round_up(length, step);
}

/// At most an eighth more documents.
std::int64_t rounded_count(std::int64_t count) {
  return base::round_up(count, std::max<std::int64_t>(1, power_of_two_from(count) / 16));
}

std::vector<config::Range> documents_of(std::span<const std::int32_t> cu_seqlens) {
  std::vector<config::Range> documents;
  for (std::size_t doc = 0; doc + 1 < cu_seqlens.size(); ++doc) {
    if (cu_seqlens[doc + 1] > cu_seqlens[doc]) {
      documents.push_back({cu_seqlens[doc], cu_seqlens[doc + 1]});
    }
  }
  return documents;
}

std::int64_t tokens_of(const std::vector<config::Range>& documents) {
  std::int64_t tokens = 0;
  for (const config::Range& document : documents) {
    tokens += document.size();
  }
  return tokens;
}

std::int64_t count_with_one_more(const AttentionCall& call) {
  return static_cast<std::int64_t>(call.documents.size()) + 1;
}

/// Documents of similar lengths share a call, the longest first, while its memory stays that of one document of the
/// row's length.
std::vector<AttentionCall> packed_calls(std::vector<config::Range> documents) {
  const std::int64_t room = rounded_length(tokens_of(documents));
  std::stable_sort(documents.begin(), documents.end(),
                   [](const auto& a, const auto& b) { return a.size() > b.size(); });
  std::vector<AttentionCall> calls;
  for (const config::Range& document : documents) {
    if (calls.empty() ||
        rounded_count(count_with_one_more(calls.back())) * calls.back().longest > room) {
      calls.push_back({.kernel = AttentionKernel::kCudnnPacked,
                       .documents = {},
                       .longest = std::min(room, coarse_length(document.size()))});
    }
    AttentionCall& call = calls.back();
    call.capacity = rounded_count(count_with_one_more(call));
    call.documents.push_back(document);
  }
  return calls;
}

/// One document per call but for FlashAttention-2, which takes those that follow one another while they fit its memory.
std::vector<AttentionCall> calls_in_order(const std::vector<config::Range>& documents,
                                          AttentionKernel long_kernel, AttentionKernel short_kernel,
                                          std::int64_t long_from) {
  const std::int64_t most_rows = config::most_flash_rows(tokens_of(documents));
  std::vector<AttentionCall> calls;
  for (const config::Range& document : documents) {
    const AttentionKernel kernel = document.size() >= long_from ? long_kernel : short_kernel;
    const auto joins = [&](const AttentionCall& call) {
      const std::int64_t rows =
          document.end - call.rows().begin + count_with_one_more(call) * config::kFlashPadding;
      return call.kernel == kernel && kernel == AttentionKernel::kFlash && rows <= most_rows;
    };
    if (calls.empty() || !joins(calls.back())) {
      calls.push_back({.kernel = kernel, .documents = {}});
    }
    AttentionCall& call = calls.back();
    call.documents.push_back(document);
    call.longest = std::max(call.longest, document.size());
  }
  return calls;
}

}  // namespace

std::vector<AttentionCall> attention_calls(std::span<const std::int32_t> cu_seqlens,
                                           AttentionKernels kernels,
                                           const AttentionLimits& limits) {
  const std::vector<config::Range> documents = documents_of(cu_seqlens);
  const auto all_with = [&](AttentionKernel kernel) {
    return calls_in_order(documents, kernel, kernel, kOwnCallTokens);
  };
  if (limits.is_float32) {
    return all_with(AttentionKernel::kFloat32);
  }
  if (limits.deterministic || kernels == AttentionKernels::kFlash) {
    return all_with(AttentionKernel::kFlash);
  }
  if (!limits.has_packed_cudnn || kernels == AttentionKernels::kCudnnPerDocument) {
    constexpr std::int64_t kTwo = 2;  // cuDNN refuses a document of one token
    const bool is_forced = kernels != AttentionKernels::kFastest;
    return calls_in_order(documents, AttentionKernel::kCudnn, AttentionKernel::kFlash,
                          is_forced ? kTwo : kOwnCallTokens);
  }
  const bool is_common = documents.size() == 1 && documents.front().size() % kLengthStep == 0;
  return is_common ? all_with(AttentionKernel::kCudnn) : packed_calls(documents);
}

}  // namespace longhaul::ops
