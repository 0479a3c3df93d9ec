/* Random bytes: one CTR-DRBG of this process, to which every draw adds fresh bytes of the kernel's.
 *
 *     getrandom(2) --32 bytes--> additional input --+
 *           |                                       v
 *           |     seed of the system -----> AES-256 CTR-DRBG -----> nonces of many blocks, keys
 *           +-----------------------------------------------------> nonces of a few blocks
 *
 * Whatever copies the memory of a process (fork, a raw clone, a snapshot that is resumed twice) copies the state of a
 * generator in it. Two copies draw different bytes all the same, since the kernel gives each of them other ones.
 *
 * Not RAND_bytes: its generators belong to threads, and each thread that has one takes a lock of libcrypto's when it
 * exits. A child that is forked at that moment inherits the lock, taken for ever. The lock here is taken by the
 * thread that forks, so that no other thread has it then.
 *
 * Its state is static: one module includes this. Source: NIST SP 800-90A, section 10.2.1; prediction resistance is by
 * additional input, which costs one update of the state instead of a reseed.
 */
#ifndef AGS1_DRBG_H
#define AGS1_DRBG_H

#include <errno.h>
#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <pthread.h>
#include <stddef.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/syscall.h>
#else
#include <sys/random.h>
#endif

#define AGS1_DRBG_STRENGTH 256
#define AGS1_DRBG_FRESH 32
/* Up to so many bytes the kernel is no slower than the generator with the kernel's bytes added. */
#define AGS1_DRBG_FEW 64

static EVP_RAND_CTX *ags1_drbg;
static pthread_mutex_t ags1_drbg_lock = PTHREAD_MUTEX_INITIALIZER;

static void ags1_drbg_take(void)
{
    pthread_mutex_lock(&ags1_drbg_lock);
}

static void ags1_drbg_give(void)
{
    pthread_mutex_unlock(&ags1_drbg_lock);
}

/* Make the generator. Returns 1, or 0 with the reason in OpenSSL's error queue. */
static int ags1_drbg_start(void)
{
    char cipher[] = "AES-256-CTR";
    /* The kernel's bytes need no derivation function to become a seed. */
    int derive = 0;
    OSSL_PARAM parameters[3];
    EVP_RAND *method;
    EVP_RAND_CTX *made;
    if (ags1_drbg != NULL)
        return 1;
    method = EVP_RAND_fetch(NULL, "CTR-DRBG", NULL);
    if (method == NULL)
        return 0;
    made = EVP_RAND_CTX_new(method, NULL);
    EVP_RAND_free(method);
    parameters[0] = OSSL_PARAM_construct_utf8_string(OSSL_DRBG_PARAM_CIPHER, cipher, 0);
    parameters[1] = OSSL_PARAM_construct_int(OSSL_DRBG_PARAM_USE_DF, &derive);
    parameters[2] = OSSL_PARAM_construct_end();
    if (made == NULL || !EVP_RAND_instantiate(made, AGS1_DRBG_STRENGTH, 0, NULL, 0, parameters)
        || pthread_atfork(ags1_drbg_take, ags1_drbg_give, ags1_drbg_give) != 0) {
        EVP_RAND_CTX_free(made);
        return 0;
    }
    ags1_drbg = made;
    return 1;
}

/* Up to 256 bytes that the kernel makes now. Returns 1, or 0 if it gives none. */
static int ags1_drbg_fresh(unsigned char *out, size_t length)
{
#ifdef __linux__
    /* The system call itself: getrandom(3) of newer C libraries takes from a buffer in the process, which a snapshot
     * copies. So few bytes come whole or not at all. */
    long count;
    do {
        count = syscall(SYS_getrandom, out, length, 0);
    } while (count < 0 && errno == EINTR);
    return count == (long)length;
#else
    return getentropy(out, length) == 0;
#endif
}

/* Fill `out`. Returns 1, or 0 if there is no randomness: then nothing in `out` may be used. */
static int ags1_drbg_draw(unsigned char *out, size_t length)
{
    unsigned char fresh[AGS1_DRBG_FRESH];
    int done;
    if (!ags1_drbg_fresh(fresh, sizeof fresh))
        return 0;
    ags1_drbg_take();
    done = EVP_RAND_generate(ags1_drbg, out, length, AGS1_DRBG_STRENGTH, 0, fresh, sizeof fresh);
    ags1_drbg_give();
    return done == 1;
}

/* The same for nonces: few come from the kernel itself. */
static int ags1_drbg_draw_nonces(unsigned char *out, size_t length)
{
    return length <= AGS1_DRBG_FEW ? ags1_drbg_fresh(out, length) : ags1_drbg_draw(out, length);
}

#endif
