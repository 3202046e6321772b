// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>
#include <cstring>
#include <iostream>

#include <nlohmann/json.hpp>

#include "../standard_descriptors.hpp"
#include "commands.hpp"

int main(int argument_count, char** arguments) {
    if (!upcie::hold_standard_descriptors()) {
        return 1;
    }
    const int status = upcie::rm::tool::run(argument_count, arguments, {std::cout, std::cerr});
    errno = 0;
    std::cout.flush();
    if (!std::cout) {
        std::cerr << "upcie_rm: write to standard output: " << (errno != 0 ? std::strerror(errno) : "failed")
                  << ". The answer is not complete: make room, or leave the reader open, and run it again.\n";
        return status != 0 ? status : 1;
    }
    return status;
}
