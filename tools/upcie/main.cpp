// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>
#include <cstring>
#include <iostream>

#include "../standard_descriptors.hpp"
#include "commands.hpp"

int main(int argument_count, char** arguments) {
    if (!upcie::hold_standard_descriptors()) {
        return static_cast<int>(upcie::cli::ExitCode::failed);
    }
    upcie::cli::Context context{std::cout, std::cerr, upcie::os::real_system(), {}, false};
    const int status = upcie::cli::run(argument_count, arguments, context);
    errno = 0;
    std::cout.flush();
    if (!std::cout) {
        std::cerr << "upcie: write to standard output: " << (errno != 0 ? std::strerror(errno) : "failed")
                  << ". The answer is not complete: make room, or leave the reader open, and run it again.\n";
        return status != 0 ? status : static_cast<int>(upcie::cli::ExitCode::failed);
    }
    return status;
}
