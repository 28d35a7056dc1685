/* What small durable appends cost on a disk: fsync FOLDER BYTES SECONDS
 *
 * Appends so many bytes to a new file in the folder and makes each append durable (fdatasync), one after the other for
 * so many seconds; then writes the microseconds of each on a line of its own, and removes the file. In C, and apart from
 * the driver of benchmarks, so that it is as near to the disk as a program can be.
 *
 *   cc -O2 -o fsync bench/fsync.c
 *
 * `stoa-bench run inserts --beside 'fsync FOLDER 200 5'` runs it in turns with clients.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static uint64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

/* Appends until the time is over; 0 after an error. */
static size_t append(int file, const char *bytes, size_t length, uint64_t nanoseconds, uint64_t *times, size_t most) {
  size_t done = 0;
  for (uint64_t start = now(), before = start; done < most && before - start < nanoseconds; done++) {
    if (write(file, bytes, length) != (ssize_t)length || fdatasync(file) != 0) {
      return 0;
    }
    uint64_t after = now();
    times[done] = after - before;
    before = after;
  }
  return done;
}

int main(int count, char **arguments) {
  const size_t most = 20000000;
  if (count != 4 || atol(arguments[2]) < 1 || atof(arguments[3]) <= 0) {
    fprintf(stderr, "usage: fsync FOLDER BYTES SECONDS\n");
    return 2;
  }
  size_t length = (size_t)atol(arguments[2]);
  char path[4096], *bytes = malloc(length);
  uint64_t *times = malloc(most * sizeof *times);
  snprintf(path, sizeof path, "%s/fsync-%ld", arguments[1], (long)getpid());
  int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND, 0600);
  if (file < 0 || bytes == NULL || times == NULL) {
    perror(path);
    return 1;
  }
  memset(bytes, 7, length);
  size_t done = append(file, bytes, length, (uint64_t)(atof(arguments[3]) * 1e9), times, most);
  if (done == 0) {
    perror(path);
  }
  unlink(path);
  for (size_t at = 0; at < done; at++) {
    printf("%.3f\n", (double)times[at] / 1000);
  }
  return done == 0;
}
