/* To be preloaded into a server that leaves Nagle's algorithm on: every connection that it accepts gets TCP_NODELAY.
   Without it an answer in several pieces waits 40 ms for the client's acknowledgement of the first one. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

static int nodelay(int connection) {
  int on = 1;
  if (connection >= 0)
    setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return connection;
}

int accept(int listener, struct sockaddr *address, socklen_t *length) {
  int (*next)(int, struct sockaddr *, socklen_t *) = dlsym(RTLD_NEXT, "accept");
  return nodelay(next(listener, address, length));
}

int accept4(int listener, struct sockaddr *address, socklen_t *length, int flags) {
  int (*next)(int, struct sockaddr *, socklen_t *, int) = dlsym(RTLD_NEXT, "accept4");
  return nodelay(next(listener, address, length, flags));
}
