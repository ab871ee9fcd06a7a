/* Four readers and one writer on a seqlock. Every record is n words that say the same thing in different ways, so a torn
 * one cannot pass. Prints the reads, the torn ones, and the generations that the readers saw.
 *
 * cc -I <folder of seqlock.h> seqlock_harness.c -pthread && ./a.out <words> <reads per reader>
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "seqlock.h"

enum { READERS = 4 };

static pn_seqlock lock;
static size_t n_words;
static long n_reads;
static _Atomic int readers_left = READERS;

static uint64_t expected(uint64_t generation, size_t i) { return generation * 0x9E3779B97F4A7C15u + i * i; }

typedef struct result {
    pthread_t thread;
    long torn, generations, backwards;
} result;

static void *reader(void *arg) {
    result *r = arg;
    uint64_t words[PN_SEQLOCK_WORDS], last = 0;
    for (long k = 0; k < n_reads; k++) {
        uint64_t generation = pn_seqlock_read(&lock, words, n_words);
        for (size_t i = 0; i < n_words; i++) r->torn += words[i] != expected(generation, i);
        r->generations += generation != last;
        r->backwards += generation < last;
        last = generation;
    }
    atomic_fetch_sub(&readers_left, 1);
    return NULL;
}

int main(int argc, char **argv) {
    static result results[READERS];
    uint64_t words[PN_SEQLOCK_WORDS], generation = 0;
    long torn = 0, generations = 0, backwards = 0;
    n_words = argc > 1 ? strtoul(argv[1], NULL, 10) : PN_SEQLOCK_WORDS;
    n_reads = argc > 2 ? strtol(argv[2], NULL, 10) : 2500000;
    for (size_t i = 0; i < n_words; i++) words[i] = expected(1, i);
    pn_seqlock_write(&lock, words, n_words);
    generation = 1;
    for (int i = 0; i < READERS; i++) pthread_create(&results[i].thread, NULL, reader, &results[i]);
    while (atomic_load(&readers_left) > 0) {
        generation++;
        for (size_t i = 0; i < n_words; i++) words[i] = expected(generation, i);
        pn_seqlock_write(&lock, words, n_words);
        for (volatile int pause = 0; pause < 300; pause++) {}
    }
    for (int i = 0; i < READERS; i++) {
        pthread_join(results[i].thread, NULL);
        torn += results[i].torn;
        generations += results[i].generations;
        backwards += results[i].backwards;
    }
    printf("%ld %ld %ld %ld\n", n_reads * READERS, torn, backwards, generations);
    return torn != 0 || backwards != 0;
}
