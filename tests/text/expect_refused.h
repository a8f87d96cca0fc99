// Checks that a call throws UserError whose one line mentions what it must.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "base/error.h"

namespace longhaul::text {

/// The message of the UserError that `call` throws; a failed expectation when it throws none.
inline std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const base::UserError& error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was refused";
  return "";
}

}  // namespace longhaul::text
