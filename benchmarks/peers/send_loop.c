/* The limit: one thread that writes what it reads to every client, with nothing but epoll and send().
 *
 *     send_loop PORT PUBLISHER-PORT sse|websocket
 *
 * A client asks for `…/KEY/…`, KEY a number below 64, and is answered with the head of a stream. A publisher sends updates:
 * 4 bytes length and 4 bytes key, in the machine's order, then the bytes that each client of the key gets. Updates that
 * are read together go out together, one send() per client, as the gateway does it.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { KEYS = 64, CLIENTS = 20000, ROOM = 1 << 20, EVENTS = 512 };

static const char SSE[] = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
static const char WEBSOCKET[] = "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n";

static int clients[KEYS][CLIENTS], counts[KEYS], place[65536], key_of[65536];
static char input[ROOM], joined[KEYS][ROOM];
static size_t held, sizes[KEYS];
static int epoll;

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void watch(int fd) {
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) < 0) fail("epoll_ctl");
}

static int listen_at(int port) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), yes = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) < 0 || listen(fd, 2048) < 0) fail("listen");
    watch(fd);
    return fd;
}

static void forget(int fd) {
    int key = key_of[fd];
    if (key >= 0) {
        int last = clients[key][--counts[key]];
        clients[key][place[fd]] = last;
        place[last] = place[fd];
    }
    close(fd);
}

/* All of it: a client that reads slowly holds everybody up, so that nobody is left out. */
static int send_all(int fd, const char *data, size_t size) {
    while (size > 0) {
        ssize_t sent = send(fd, data, size, MSG_NOSIGNAL);
        if (sent < 0 && errno == EAGAIN) {
            struct pollfd wait = {.fd = fd, .events = POLLOUT};
            poll(&wait, 1, -1);
        } else if (sent < 0) {
            return -1;
        } else {
            data += sent;
            size -= sent;
        }
    }
    return 0;
}

static void flush(int key) {
    for (int n = 0; n < counts[key];) {
        int fd = clients[key][n];
        if (send_all(fd, joined[key], sizes[key]) < 0) {
            epoll_ctl(epoll, EPOLL_CTL_DEL, fd, NULL);
            forget(fd);
        } else {
            n++;
        }
    }
    sizes[key] = 0;
}

static void publish(int fd) {
    ssize_t got = read(fd, input + held, ROOM - held);
    if (got <= 0) {
        if (got < 0 && errno == EAGAIN) return;
        close(fd);
        held = 0;
        return;
    }
    held += got;
    size_t done = 0;
    while (held - done >= 8) {
        uint32_t size, key;
        memcpy(&size, input + done, 4);
        memcpy(&key, input + done + 4, 4);
        if (key >= KEYS || size > ROOM / 2) exit(2);
        if (held - done < 8 + size) break;
        if (sizes[key] + size > ROOM) flush(key);
        memcpy(joined[key] + sizes[key], input + done + 8, size);
        sizes[key] += size;
        done += 8 + size;
    }
    memmove(input, input + done, held -= done);
    for (int key = 0; key < KEYS; key++)
        if (sizes[key] > 0) flush(key);
}

/* The request comes in one piece; whatever a client says later is passed over. */
static void receive(int fd, const char *head, size_t size) {
    char text[4096];
    ssize_t got = read(fd, text, sizeof text - 1);
    if (got <= 0) {
        if (got < 0 && errno == EAGAIN) return;
        forget(fd);
        return;
    }
    if (key_of[fd] >= 0) return;
    text[got] = 0;
    char *number = strpbrk(text, "0123456789");
    int key = number != NULL ? atoi(number) : 0;
    if (key < 0 || key >= KEYS || counts[key] == CLIENTS) exit(2);
    key_of[fd] = key;
    place[fd] = counts[key];
    clients[key][counts[key]++] = fd;
    send_all(fd, head, size);
}

int main(int count, char **words) {
    if (count != 4) return 2;
    signal(SIGPIPE, SIG_IGN);
    if ((epoll = epoll_create1(0)) < 0) fail("epoll_create1");
    int clients_at = listen_at(atoi(words[1])), publisher_at = listen_at(atoi(words[2])), publisher = -1;
    int sse = strcmp(words[3], "sse") == 0;
    for (;;) {
        struct epoll_event events[EVENTS];
        int found = epoll_wait(epoll, events, EVENTS, -1);
        for (int n = 0; n < found; n++) {
            int fd = events[n].data.fd, yes = 1, new;
            if (fd == clients_at || fd == publisher_at) {
                while ((new = accept4(fd, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
                    setsockopt(new, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
                    key_of[new] = -1;
                    if (fd == publisher_at) publisher = new;
                    watch(new);
                }
            } else if (fd == publisher) {
                publish(fd);
            } else if (sse) {
                receive(fd, SSE, sizeof SSE - 1);
            } else {
                receive(fd, WEBSOCKET, sizeof WEBSOCKET - 1);
            }
        }
    }
}
