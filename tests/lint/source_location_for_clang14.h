// Only for clang-tidy 14, which lacks the builtin behind <source_location>: a stand-in with the
// same members. Included on its command line before each file; the compilers of the build never see
// it.
#pragma once

#if !__has_builtin(__builtin_source_location)
namespace std {
struct source_location {
  static constexpr source_location current() noexcept { return {}; }
  [[nodiscard]] constexpr const char* file_name() const noexcept { return ""; }
  [[nodiscard]] constexpr const char* function_name() const noexcept { return ""; }
  [[nodiscard]] constexpr unsigned line() const noexcept { return 0; }
  [[nodiscard]] constexpr unsigned column() const noexcept { return 0; }
};
}  // namespace std
#endif
