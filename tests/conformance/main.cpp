// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include "device.hpp"

// Opens the device before the first test, so that a wrong environment ends with one sentence and status 2.
int main(int argc, char** argv) {
    ::testing::InitGoogleTest(&argc, argv);
    if (!::testing::GTEST_FLAG(list_tests) && !upcie::conformance::Device::instance().open()) {
        return 2;
    }
    const int result = RUN_ALL_TESTS();
    upcie::conformance::Device::instance().close();
    return result;
}
