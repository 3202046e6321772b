// SPDX-License-Identifier: BSD-3-Clause
#include "filter.hpp"

#include <cstddef>

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include "system_calls.hpp"

namespace upcie::rm {

namespace {

#if defined(__x86_64__)
constexpr std::uint32_t native_architecture = AUDIT_ARCH_X86_64;
constexpr std::uint32_t foreign_architecture = AUDIT_ARCH_I386;
constexpr std::uint32_t foreign_ioctl = 54;
constexpr std::uint32_t x32_bit = 0x40000000;
constexpr std::uint32_t x32_ioctl = x32_bit | 514;
#elif defined(__aarch64__)
constexpr std::uint32_t native_architecture = AUDIT_ARCH_AARCH64;
constexpr std::uint32_t foreign_architecture = AUDIT_ARCH_ARM;
constexpr std::uint32_t foreign_ioctl = 54;
#else
#error "upcie_rm_trace knows the calling conventions of x86-64 and aarch64 only"
#endif

constexpr std::uint32_t trace(FilterReason reason) {
    return SECCOMP_RET_TRACE | static_cast<std::uint32_t>(reason);
}

constexpr std::uint16_t load = BPF_LD | BPF_W | BPF_ABS;
constexpr std::uint16_t equal = BPF_JMP | BPF_JEQ | BPF_K;
constexpr std::uint16_t any_bit = BPF_JMP | BPF_JSET | BPF_K;
constexpr std::uint16_t answer = BPF_RET | BPF_K;

sock_filter statement(std::uint16_t code, std::uint32_t value) {
    return {code, 0, 0, value};
}
sock_filter jump(std::uint16_t code, std::uint32_t value, std::uint8_t if_true, std::uint8_t if_false) {
    return {code, if_true, if_false, value};
}
/// The lower half of an argument: both machines are little-endian.
std::uint32_t argument(unsigned index) {
    return static_cast<std::uint32_t>(offsetof(seccomp_data, args) + 8 * index);
}

/// What follows once the number is known to be that of `call`: ends in an answer in any case.
std::vector<sock_filter> decision(const SystemCall& call) {
    const auto stop = statement(answer, trace(FilterReason::native));
    const auto pass = statement(answer, SECCOMP_RET_ALLOW);
    switch (call.condition) {
    case Condition::file_or_fixed_mapping:
        return {statement(load, argument(3)), jump(any_bit, MAP_FIXED | MAP_FIXED_NOREPLACE, 2, 0),
                jump(any_bit, MAP_ANONYMOUS, 0, 1), pass, stop};
    case Condition::duplicating:
        return {statement(load, argument(1)), jump(equal, F_DUPFD, 2, 0), jump(equal, F_DUPFD_CLOEXEC, 1, 0), pass,
                stop};
    case Condition::sets_filter:
        return {statement(load, argument(0)), jump(equal, PR_SET_SECCOMP, 1, 0), pass, stop};
    case Condition::always:
    case Condition::memory_only:
    case Condition::watching_only:
        break;
    }
    return {stop};
}

} // namespace

std::vector<sock_filter> make_filter(bool with_memory) {
    std::vector<sock_filter> program;
    const auto pass = statement(answer, SECCOMP_RET_ALLOW);
    program.push_back(statement(load, offsetof(seccomp_data, arch)));
    // Another calling convention: only its ioctl, so that a node's call is noticed and not silently missing.
    program.push_back(jump(equal, native_architecture, 5, 0));
    program.push_back(jump(equal, foreign_architecture, 0, 2));
    program.push_back(statement(load, offsetof(seccomp_data, nr)));
    program.push_back(jump(equal, foreign_ioctl, 1, 0));
    program.push_back(pass);
    program.push_back(statement(answer, trace(FilterReason::foreign)));
    program.push_back(statement(load, offsetof(seccomp_data, nr)));
#if defined(__x86_64__)
    program.push_back(jump(equal, x32_ioctl, 0, 1));
    program.push_back(statement(answer, trace(FilterReason::foreign)));
#endif
    for (const SystemCall& call : system_calls()) {
        if (call.condition == Condition::watching_only || (call.condition == Condition::memory_only && !with_memory)) {
            continue;
        }
        const auto then = decision(call);
        program.push_back(jump(equal, call.number, 0, static_cast<std::uint8_t>(then.size())));
        program.insert(program.end(), then.begin(), then.end());
    }
    program.push_back(pass);
    return program;
}

} // namespace upcie::rm
