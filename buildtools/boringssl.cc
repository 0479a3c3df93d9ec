// What ags1.core.boringssl links of BoringSSL: AES-GCM behind EVP, with the assembly that buildtools/boringssl.py names.
//
// BoringSSL compiles these files as one, too (crypto/fipsmodule/bcm.cc, with much else). Left out of it are its random
// generator, which AES-GCM with given nonces never asks, and its error queue: that is a thread-local whose destructor
// takes a mutex, which a child that is forked meanwhile would inherit. Without them it needs nothing of C++ at run time.

#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>

#include <openssl/base.h>

// Hidden, these hooks are not looked for in other libraries of the process.
extern "C" {
__attribute__((visibility("hidden"))) void *OPENSSL_memory_alloc(size_t size);
__attribute__((visibility("hidden"))) void OPENSSL_memory_free(void *memory);
__attribute__((visibility("hidden"))) size_t OPENSSL_memory_get_size(void *memory);
}

#include "crypto/cpu_intel.cc"
#include "crypto/fipsmodule/aes/aes.cc.inc"
#include "crypto/fipsmodule/aes/aes_nohw.cc.inc"
#include "crypto/fipsmodule/aes/cbc.cc.inc"
#include "crypto/fipsmodule/aes/ctr.cc.inc"
#include "crypto/fipsmodule/aes/gcm.cc.inc"
#include "crypto/fipsmodule/aes/gcm_nohw.cc.inc"
#include "crypto/fipsmodule/aes/mode_wrappers.cc.inc"
#include "crypto/fipsmodule/aes/ofb.cc.inc"
#include "crypto/fipsmodule/cipher/cipher.cc.inc"
#include "crypto/fipsmodule/cipher/e_aes.cc.inc"
#include "crypto/mem.cc"

uint32_t bssl::OPENSSL_ia32cap_P[4] = {0};

uint32_t bssl::OPENSSL_get_ia32cap(int index) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, OPENSSL_cpuid_setup);
  return OPENSSL_ia32cap_P[index];
}

void bssl::CRYPTO_once(CRYPTO_once_t *once, void (*init)()) { pthread_once(once, init); }

void ERR_put_error(int, int, int, const char *, unsigned) {}

bssl::bcm_infallible bssl::BCM_rand_bytes(uint8_t *, size_t) { abort(); }

// Whether AES-GCM uses registers of 512 bits where the CPU has them: BoringSSL avoids them on some of Intel's CPUs.
extern "C" int ags1_boringssl_uses_zmm() { return !bssl::CRYPTO_cpu_avoid_zmm_registers(); }
