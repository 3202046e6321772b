// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/result.hpp>

int main() {
    return 0;
}
