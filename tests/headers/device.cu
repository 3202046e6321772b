// SPDX-License-Identifier: BSD-3-Clause
// Device code drives a queue by QueueLayout alone: it must compile for a GPU without a warning.
#define UPCIE_DEVICE __host__ __device__
#include <upcie/nvme/queue_layout.hpp>

__global__ void drive(upcie::nvme::QueueLayout* layout, unsigned* completed) {
    layout->restart();
    layout->next->opcode = 2;
    layout->advance_tail();
    layout->ring_submission();
    unsigned dword3 = 0;
    if (layout->peek_completion(dword3)) {
        *completed = dword3;
        layout->advance_head();
        layout->ring_completion();
    }
}
