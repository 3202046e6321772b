// SPDX-License-Identifier: BSD-3-Clause
// The ioctls themselves: argument and everything it points at, before and after. What points where is the
// vocabulary's knowledge (upcie/rm/nested.hpp); nothing here knows a class or a control.
#include <algorithm>
#include <optional>

#include <upcie/rm/nested.hpp>

#include "calls.hpp"

namespace upcie::rm {

namespace {

/// What is tried where nothing says how large an argument is.
constexpr std::size_t guessed_bytes = 4096;

/// The argument with what lies around it on its pages: parameters are mostly neighbours on the stack, and one read is
/// had for the price of the other.
class Surroundings {
  public:
    Surroundings(const ProcessMemory& memory, std::uint64_t address, std::size_t size) : memory_{memory} {
        constexpr std::uint64_t page = 4096;
        constexpr std::uint64_t before = 1024;
        constexpr std::uint64_t behind = 2048;
        const std::uint64_t end = address + size;
        if (end < address || end > ~std::uint64_t{0} - page) {
            return;
        }
        start_ = std::max(address / page * page, address > before ? address - before : 0);
        const std::uint64_t stop = std::min((end + page - 1) / page * page, end + behind);
        bytes_.resize(stop - start_);
        if (!memory.read_exactly(start_, bytes_.data(), bytes_.size())) {
            bytes_.clear();
        }
    }
    [[nodiscard]] Capture read(std::uint64_t address, std::size_t size) const {
        if (address < start_ || address - start_ > bytes_.size() || size > bytes_.size() - (address - start_)) {
            return memory_.read(address, size);
        }
        const auto from = bytes_.begin() + static_cast<std::ptrdiff_t>(address - start_);
        return {{from, from + static_cast<std::ptrdiff_t>(size)}, 0};
    }

  private:
    const ProcessMemory& memory_;
    std::uint64_t start_ = 0;
    std::vector<std::byte> bytes_;
};

} // namespace

bool Calls::enter_ioctl(Task& task, PendingCall& call) {
    const int fd = static_cast<int>(call.arguments[0]);
    const NodeName* const node = nodes_.of_ioctl(task.tid, fd);
    if (node == nullptr) {
        return false;
    }
    IoctlRecord record;
    record.fd = fd;
    record.node = *node;
    // The kernel takes 32 bits of it; what a program leaves above says nothing.
    record.request = call.arguments[1] & 0xffffffffU;
    record.argument = call.arguments[2];
    const ProcessMemory memory{task.tid};
    const auto size = argument_bytes(record.node.kind, record.request, driver_);
    std::optional<Surroundings> around;
    if (record.argument != 0 && size != 0U) {
        Block argument;
        argument.path = "argument";
        argument.address = record.argument;
        argument.size = size.value_or(guessed_bytes);
        argument.size_known = size.has_value();
        around.emplace(memory, argument.address, argument.size);
        argument.before = around->read(argument.address, argument.size);
        // An argument of unknown size that cannot be read at all is a number, not a pointer.
        if (argument.size_known || !argument.before.bytes.empty()) {
            record.blocks.push_back(std::move(argument));
        }
    }
    if (!record.blocks.empty() && record.blocks.front().size_known) {
        std::vector<int> errors;
        auto nested = collect_nested_blocks(record.node.kind, record.request, record.blocks.front().before.bytes,
                                            driver_, [&](std::uint64_t address, std::uint32_t bytes) {
                                                Capture read = around->read(address, bytes);
                                                errors.push_back(read.error);
                                                return std::move(read.bytes);
                                            });
        for (std::size_t i = 0; i < nested.size(); ++i) {
            Block block;
            block.path = std::move(nested[i].path);
            block.address = nested[i].address;
            block.pointer_offset = nested[i].pointer_offset;
            block.size = nested[i].bytes;
            block.cut = nested[i].truncated;
            block.before.bytes = std::move(nested[i].data);
            block.before.error = i < errors.size() ? errors[i] : 0;
            record.blocks.push_back(std::move(block));
        }
    }
    call.bodies.emplace_back(std::move(record));
    return true;
}

void Calls::leave_ioctl(const Task& task, PendingCall& call) {
    auto& record = std::get<IoctlRecord>(call.bodies.front());
    std::vector<ProcessMemory::Wanted> wanted;
    wanted.reserve(record.blocks.size());
    for (Block& block : record.blocks) {
        block.after = {};
        // Where only a part was readable before, only that much can have been the kernel's to change; asking for all
        // of a guess again would go the slow way.
        const std::size_t bytes = block.size_known ? static_cast<std::size_t>(block.size) : block.before.bytes.size();
        wanted.push_back({block.address, bytes, &block.after});
    }
    ProcessMemory{task.tid}.read_all(wanted);
    for (Block& block : record.blocks) {
        if (!block.size_known) {
            block.after.error = block.before.error;
        }
    }
}

} // namespace upcie::rm
