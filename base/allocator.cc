// SPDX-License-Identifier: Apache-2.0
// Configures jemalloc, which the daemons are linked with; MALLOC_CONF in the environment overrides
// it. Linked into each executable as a source, because jemalloc looks the symbol up.
//
// - Few arenas, so that one thread reuses the memory that another one freed. One thread makes the
//   objects of a step and another destroys them, and every run allocates a program's temporaries
//   anew.
// - Blocks of any size are kept for ten seconds: pages fresh from the kernel cost more than copying
//   into them. Blocks that are unused for that long go back, also if the process is idle. Not in
//   the controller, whose memory is bounded while any number of bytes passes through it: there,
//   blocks of 8 MiB and more go back at once.
#ifdef FAIRWAY_RETURNS_LARGE_BLOCKS
#define FAIRWAY_LARGE_BLOCKS "oversize_threshold:8388608"
#else
#define FAIRWAY_LARGE_BLOCKS "oversize_threshold:0"
#endif
extern "C" {
extern const char* malloc_conf;
const char* malloc_conf = "narenas:4," FAIRWAY_LARGE_BLOCKS
                          ",dirty_decay_ms:10000,background_thread:true,max_background_threads:1";
}
