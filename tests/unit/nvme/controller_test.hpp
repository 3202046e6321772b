// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>

#include <gtest/gtest.h>

#include <upcie/nvme/controller.hpp>
#include <upcie/os/system.hpp>

#include "nvme/fake_device.hpp"

namespace upcie::nvme {

/// A controller that is open, and the device that it drives.
class ControllerTest : public testing::Test {
  protected:
    std::shared_ptr<test::PointerSpace> space = std::make_shared<test::PointerSpace>();
    std::shared_ptr<test::FakeDevice> device = std::make_shared<test::FakeDevice>(space);
    ControllerOptions options;
    std::shared_ptr<Controller> controller;

    void open() {
        options.ready_timeout = std::chrono::milliseconds{30};
        options.shutdown_timeout = std::chrono::milliseconds{30};
        auto opened = Controller::open(os::real_system(), device, options);
        ASSERT_TRUE(opened) << opened.error().message();
        controller = *opened;
    }
    void SetUp() override { open(); }

    static Command flush() {
        Command command;
        command.nsid = 1;
        return command;
    }
};

} // namespace upcie::nvme
