// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>

#include <gtest/gtest.h>

#include <upcie/nvme/controller.hpp>
#include <upcie/os/system.hpp>

#include "nvme/fake_device.hpp"

namespace upcie::nvme {

/// A device that a test opens when it has set it up.
class UnopenedTest : public testing::Test {
  protected:
    Result<std::shared_ptr<Controller>> open() { return Controller::open(os::real_system(), device, options); }

    std::shared_ptr<test::PointerSpace> space = std::make_shared<test::PointerSpace>();
    std::shared_ptr<test::FakeDevice> device = std::make_shared<test::FakeDevice>(space);
    ControllerOptions options;

    UnopenedTest() {
        options.ready_timeout = std::chrono::milliseconds{30};
        options.shutdown_timeout = std::chrono::milliseconds{30};
    }
};

} // namespace upcie::nvme
