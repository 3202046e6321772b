// SPDX-License-Identifier: BSD-3-Clause
#include "nvme/abandoned.hpp"

#include <mutex>
#include <utility>

#include <upcie/nvme/controller.hpp>

namespace upcie::nvme {
namespace {

struct Hoard {
    std::mutex mutex;
    std::vector<std::vector<std::shared_ptr<void>>> memory;
    AbandonedMemory account;
};

/// Never destroyed: the end of the process takes the memory, after the kernel took the device.
Hoard& hoard() {
    static Hoard* const instance = new Hoard;
    return *instance;
}

} // namespace

void abandon(std::vector<std::shared_ptr<void>> memory, ByteCount bytes, std::string reason) {
    Hoard& all = hoard();
    const std::lock_guard lock{all.mutex};
    all.memory.push_back(std::move(memory));
    ++all.account.controllers;
    all.account.bytes += bytes;
    all.account.reasons.push_back(std::move(reason));
}

AbandonedMemory abandoned_memory() {
    Hoard& all = hoard();
    const std::lock_guard lock{all.mutex};
    return all.account;
}

} // namespace upcie::nvme
