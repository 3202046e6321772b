// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include <fcntl.h>
#include <gmock/gmock.h>

#include <upcie/os/fd.hpp>
#include <upcie/os/system.hpp>

#include "support/fake_sysfs.hpp"
#include "support/mock_system.hpp"

namespace upcie::test {

inline os::Fd memfd(os::System& system) {
    return os::Fd{system, system.memfd_create("stands for a dma-buf", 0)};
}

/// From now on the fdinfo of every descriptor reads as this text, kept in `folder`.
inline void show_fdinfo(MockSystem& system, const std::string& text, const TempDirectory& folder) {
    const std::string file = folder.path() / "fdinfo";
    std::ofstream{file, std::ios::trunc} << text;
    EXPECT_CALL(system, open(testing::_, testing::_, testing::_)).Times(testing::AnyNumber());
    EXPECT_CALL(system, open(testing::StartsWith("/proc/self/fdinfo/"), testing::_, testing::_))
        .WillRepeatedly([file](const char*, int flags, mode_t) { return ::open(file.c_str(), flags); });
}

} // namespace upcie::test
