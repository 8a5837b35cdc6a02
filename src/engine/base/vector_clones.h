// SPDX-License-Identifier: Apache-2.0
#pragma once

// A function compiled for several instruction sets; the loader picks one. The
// sanitizers' runtime isn't up yet when the choice is made, so there the baseline runs alone.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__) && \
    !defined(__SANITIZE_ADDRESS__)
#define REN_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define REN_CLONES
#endif
