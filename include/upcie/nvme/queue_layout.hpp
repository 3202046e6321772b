// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Freestanding: no allocation, no library call, compiles for a GPU too. UPCIE_DEVICE is what such a compiler wants
// before a function ("__host__ __device__"); a host compiler wants nothing.
#include <cstdint>
#include <type_traits>

#include <upcie/nvme/command.hpp>

#ifndef UPCIE_DEVICE
#define UPCIE_DEVICE
#endif

namespace upcie::nvme {

/// Makes every store so far visible to a device before the stores that follow (Arm: outer-shareable store barrier;
/// x86 keeps stores in order by itself, so only the compiler is told).
UPCIE_DEVICE inline void store_barrier() noexcept {
#if defined(__CUDA_ARCH__)
    __threadfence_system();
#elif defined(__aarch64__)
    asm volatile("dmb oshst" ::: "memory");
#elif defined(__x86_64__)
    asm volatile("" ::: "memory");
#else
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

/// Keeps loads that follow from being satisfied before the loads so far.
UPCIE_DEVICE inline void load_barrier() noexcept {
#if defined(__CUDA_ARCH__)
    __threadfence_system();
#elif defined(__aarch64__)
    asm volatile("dmb oshld" ::: "memory");
#elif defined(__x86_64__)
    asm volatile("" ::: "memory");
#else
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

/// A store that no store before it passes. 32 bits at once: a doorbell.
UPCIE_DEVICE inline void store_release(volatile std::uint32_t* place, std::uint32_t value) noexcept {
#if defined(__CUDA_ARCH__)
    __threadfence_system();
    *place = value;
#else
    __atomic_store_n(place, value, __ATOMIC_RELEASE);
#endif
}

/// A load that no load after it passes, where load_barrier() follows it.
[[nodiscard]] UPCIE_DEVICE inline std::uint32_t load_acquire(const std::uint32_t* place) noexcept {
#if defined(__CUDA_ARCH__)
    return *static_cast<const volatile std::uint32_t*>(place);
#else
    return __atomic_load_n(place, __ATOMIC_ACQUIRE);
#endif
}

/// Where one queue pair lies and how far it has come: all that is needed to drive it, by a CPU or a GPU.
///
/// A plain value: it owns nothing and its pointers are in the address space of whoever drives it. The rings may lie in
/// any memory that the controller reaches. One driver at a time.
struct QueueLayout {
    Command* submission = nullptr;         ///< `entries` of 64 bytes
    CompletionEntry* completion = nullptr; ///< `entries` of 16 bytes, zeroed before the queue is created
    volatile std::uint32_t* submission_doorbell = nullptr;
    volatile std::uint32_t* completion_doorbell = nullptr;
    std::uint64_t* prp_lists = nullptr; ///< CPU address of the first command's list page(s)
    std::uint32_t prp_list_stride = 0;  ///< bytes from one command's list pages to the next's
    std::uint32_t entries = 0;          ///< of each ring; one stays empty

    // Where it stands. Pointers and a pre-shifted phase bit: no multiplication and no shift on the way of a command.
    Command* next = nullptr;             ///< submission entry to fill next
    Command* submission_end = nullptr;   ///< one past the last submission entry
    Command* rung = nullptr;             ///< up to here the controller has been told
    CompletionEntry* upcoming = nullptr; ///< completion entry to look at next
    std::uint32_t phase = phase_bit;     ///< bit 16 of the dword 3 that marks a new completion entry

    static constexpr std::uint32_t phase_bit = 1U << 16;

    /// Back to the state of a queue just created. The completion ring must be zero again.
    UPCIE_DEVICE void restart() noexcept {
        next = rung = submission;
        submission_end = submission + entries;
        upcoming = completion;
        phase = phase_bit;
    }

    /// Goes on where another driver of the same rings stood: its tail, head and phase (0 or 1).
    UPCIE_DEVICE void resume(std::uint32_t at_tail, std::uint32_t at_head, std::uint32_t at_phase) noexcept {
        restart();
        next = rung = submission + at_tail;
        upcoming = completion + at_head;
        phase = at_phase == 0 ? 0 : phase_bit;
    }

    [[nodiscard]] UPCIE_DEVICE std::uint32_t tail() const noexcept {
        return static_cast<std::uint32_t>(next - submission);
    }
    [[nodiscard]] UPCIE_DEVICE std::uint32_t head() const noexcept {
        return static_cast<std::uint32_t>(upcoming - completion);
    }

    /// `next` has been filled.
    UPCIE_DEVICE void advance_tail() noexcept { advance_tail_from(next); }
    /// The same for a caller that has `next` at hand.
    UPCIE_DEVICE void advance_tail_from(Command* filled) noexcept {
        Command* const following = filled + 1;
        next = following == submission_end ? submission : following;
    }

    /// Tells the controller about all entries filled since the last call (Base Specification 2.0, section 3.3.1).
    UPCIE_DEVICE void ring_submission() noexcept {
        rung = next;
        store_barrier();
        store_release(submission_doorbell, tail());
    }

    /// True when `upcoming` is new; `cid_phase_status` is its dword 3, and the rest of it may be read.
    [[nodiscard]] UPCIE_DEVICE bool peek_completion(std::uint32_t& cid_phase_status) const noexcept {
        cid_phase_status = load_acquire(&upcoming->cid_phase_status);
        if (((cid_phase_status ^ phase) & phase_bit) != 0) {
            return false;
        }
        load_barrier();
        return true;
    }

    UPCIE_DEVICE void advance_head() noexcept {
        if (++upcoming == completion + entries) {
            upcoming = completion;
            phase ^= phase_bit;
        }
    }

    /// Gives all completion entries looked at back to the controller.
    UPCIE_DEVICE void ring_completion() noexcept { store_release(completion_doorbell, head()); }
};
static_assert(std::is_standard_layout_v<QueueLayout>);

} // namespace upcie::nvme
