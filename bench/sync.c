/* Another disk for a server: LD_PRELOAD=sync.so SYNC_MICROSECONDS=0 COMMAND
 *
 * fsync and fdatasync wait so long and do nothing else: 0 is a disk whose syncs are free, 2000 one that takes 2 ms. What
 * was acknowledged may then be lost with the power, so this is for measuring alone. io_uring is not replaced; the log is
 * not synced by it.
 *
 *   cc -O2 -shared -fPIC -o sync.so bench/sync.c
 */
#include <errno.h>
#include <stdlib.h>
#include <time.h>

static int wait_instead(void) {
  const char *text = getenv("SYNC_MICROSECONDS");
  long microseconds = text == NULL ? 0 : atol(text);
  if (microseconds > 0) {
    struct timespec rest = {microseconds / 1000000, microseconds % 1000000 * 1000};
    while (nanosleep(&rest, &rest) != 0 && errno == EINTR) {
    }
  }
  return 0;
}

int fsync(int file) {
  (void)file;
  return wait_instead();
}

int fdatasync(int file) {
  (void)file;
  return wait_instead();
}
