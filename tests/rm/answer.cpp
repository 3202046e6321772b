// SPDX-License-Identifier: BSD-3-Clause
// Playing the driver: what is answered to an ioctl, in the memory of whoever made it.
#include <cerrno>
#include <vector>

#include <sys/uio.h>

#include "supervisor.hpp"
#include "target_calls.hpp"

namespace upcie::rm::target {

namespace {

constexpr std::size_t most_bytes = 1U << 16;

bool read_block(pid_t tid, std::uint64_t address, std::vector<unsigned char>& block) {
    const iovec local{block.data(), block.size()};
    const iovec there{reinterpret_cast<void*>(address), block.size()};
    return ::process_vm_readv(tid, &local, 1, &there, 1, 0) == static_cast<ssize_t>(block.size());
}
bool write_block(pid_t tid, std::uint64_t address, std::vector<unsigned char>& block) {
    const iovec local{block.data(), block.size()};
    const iovec there{reinterpret_cast<void*>(address), block.size()};
    return ::process_vm_writev(tid, &local, 1, &there, 1, 0) == static_cast<ssize_t>(block.size());
}

int answer_block(pid_t tid, std::uint64_t address, std::size_t size) {
    if (address == 0 || size == 0) {
        return 0;
    }
    if (size > most_bytes) {
        return EINVAL;
    }
    std::vector<unsigned char> block(size);
    if (!read_block(tid, address, block)) {
        return EFAULT;
    }
    answer_parameters(block.data(), size);
    return write_block(tid, address, block) ? 0 : EFAULT;
}

int answer_control(pid_t tid, const std::vector<unsigned char>& argument) {
    const auto command = get<std::uint32_t>(argument.data(), 8);
    const auto parameters = get<std::uint64_t>(argument.data(), 16);
    const auto size = get<std::uint32_t>(argument.data(), 24);
    if (command != build_version_control) {
        return answer_block(tid, parameters, size);
    }
    // The pointers inside stay; what they lead to is answered.
    std::vector<unsigned char> block(32);
    if (!read_block(tid, parameters, block)) {
        return EFAULT;
    }
    for (const std::size_t pointer : {8U, 16U, 24U}) {
        if (const int problem = answer_block(tid, get<std::uint64_t>(block.data(), pointer), version_bytes)) {
            return problem;
        }
    }
    return 0;
}

} // namespace

bool is_slow(pid_t tid, std::uint32_t request, std::uint64_t address) {
    std::vector<unsigned char> argument(32);
    return request == rm_control && read_block(tid, address, argument) &&
           get<std::uint32_t>(argument.data(), 4) == slow_object;
}

int answer_ioctl(pid_t tid, std::uint32_t request, std::uint64_t address) {
    const std::size_t size = argument_size(request);
    if (size == 0 || size > most_bytes) {
        return request == uvm_unknown ? ENOTTY : 0;
    }
    std::vector<unsigned char> argument(size);
    if (!read_block(tid, address, argument)) {
        return EFAULT;
    }
    int problem = 0;
    if (request == rm_control) {
        problem = answer_control(tid, argument);
    } else if (request == rm_alloc) {
        problem = answer_block(tid, get<std::uint64_t>(argument.data(), 16), device_parameter_bytes);
    } else if (request == rm_transfer) {
        // Only the control is sent that way here.
        return answer_ioctl(tid, rm_control, get<std::uint64_t>(argument.data(), 8));
    }
    if (problem != 0) {
        return problem;
    }
    answer_argument(request, argument.data(), size);
    return write_block(tid, address, argument) ? 0 : EFAULT;
}

} // namespace upcie::rm::target
