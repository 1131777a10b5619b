/* What the gateway does in C where there is a compiler; Python does the same where there is none, or HEADGATE_PURE is set:
 *
 *   Writer          events at the front of a read from Redis, written straight to the sockets of their clients (delivery/direct.py)
 *   page_frames     the frames of entries of the log, for clients that catch up (delivery/page_cache.py)
 *   is_surely_json  whether a payload is what event.check_json takes (events/event.py)
 *   usual_head      the parts of the usual head of an HTTP request (transport/http_parser.py)
 *
 * Of Writer. In: replies of a subscriber connection, as hiredis makes them, and the place of the feed. Out: frames on sockets, and what
 * became of them. `Writer.take` takes messages from the front as long as each is the usual case, and leaves the first other one,
 * and all behind it, to Python: delivery/bus/feed.py judges it, delivery/fanout.py writes it. delivery/direct.py has the contract,
 * and the tests hold both ways to the same outcome.
 *
 * The usual case: a message with the header of a logged event in the epoch of the feed, at an offset that simply follows, with a
 * payload that is surely JSON, for at most MAX_AUDIENCE clients of which each may be written to directly or catches up: the log
 * brings it what it is passed by. "Surely": what is taken here is a part of what event.check_json takes. Numbers of two hundred
 * digits, for one, are left to it.
 *
 * The steps are those of the Python path: decode_message, Feed._next_events, Router.match, event_frame, Pass. A client that
 * gets several events of a run gets them in one write. Nothing here waits, and no code of Python's runs between the first
 * write and the last.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>

#include "_native_json.h"
#include "_native_frame.h"
#include "_native_head.h"
#include "_native_message.h"
#include "_native_page.h"
#include "_native_redis.h"

#ifndef MSG_NOSIGNAL /* Python ignores SIGPIPE anyway */
#define MSG_NOSIGNAL 0
#endif

#if defined(__GNUC__)
#define FETCH(address) __builtin_prefetch(address)
#else
#define FETCH(address) ((void)(address))
#endif

enum {
    MAX_AUDIENCE = 15,       /* clients of one event: fanout._FEW_CLIENTS */
    MAX_WRITES = 64,         /* a run takes no further event from here on: half a millisecond */
    MAX_EVENTS = 128,        /* of a run, those that nobody wants included: feed.MAX_EVENTS */
    MAX_LEAP = 256,          /* feed.MAX_LEAP */
    MAX_LINKS = MAX_WRITES + MAX_AUDIENCE,
    TARGET_SLOTS = 256, /* a power of two, more than twice MAX_LINKS */
};

/* -- a run ---------------------------------------------------------------------------------------------------------------- */

struct event {
    PyObject *topic, *clients; /* ours */
    size_t at, size, skip;     /* its frame in `frames`, and how much of that is the header of WebSocket */
    Py_ssize_t payload_bytes;
    long long offset, time_ms;
};

/* A client's part of a run is a list of links, in order. */
struct link {
    int event, next;
};

struct target {
    PyObject *client; /* held by the events' tuples */
    int first, last, count;
    size_t size;
    int reads; /* it catches up: the log brings its part */
};

typedef struct {
    PyObject_HEAD
    PyObject *find, *namespace;
    Py_ssize_t prefix_bytes, mark_at, max_payload_bytes;
    long long tally_every;
    struct buffer frames, joined;
    /* of the run under way */
    int events_count, links_count, targets_count;
    int readers_count; /* among the targets */
    long long unwanted, routed;
    long long written; /* the attribute of the same name */
    struct event events[MAX_EVENTS];
    struct link links[MAX_LINKS];
    struct target targets[MAX_LINKS];
    short slots[TARGET_SLOTS]; /* the number of a target by its client's address, plus one */
} Writer;

static PyTypeObject *SOCKET; /* _socket.socket */

/* An attribute that is read for each client. In a class with `__slots__` it has the same place in all objects, which is looked up
 * once for a class: that takes a tenth of the time of asking Python. Anything else is asked for by name. */
struct attribute {
    PyObject *name;
    PyTypeObject *type; /* what follows is of this class */
    Py_ssize_t offset;  /* of its place; 0: it has none */
};

static struct attribute CLIENTS, LISTED, CONNECTION, READY, WIRE, SEND, DIRECT, STATE, TAKES_LIVE, CLOSED, LEFT_TO_LOG;

/* Look up how objects of a class have an attribute. */
static void look_up(PyTypeObject *type, struct attribute *attribute)
{
    PyObject *found = PyObject_GetAttr((PyObject *)type, attribute->name);
    if (!found)
        PyErr_Clear(); /* the class has none: the object may */
    attribute->offset = 0;
    if (found && Py_IS_TYPE(found, &PyMemberDescr_Type) && PyType_IsSubtype(type, PyDescr_TYPE(found))) {
        PyMemberDef *member = ((PyMemberDescrObject *)found)->d_member;
        attribute->offset = member->type == T_OBJECT_EX ? member->offset : 0;
    }
    Py_XDECREF(found);
    Py_XSETREF(attribute->type, (PyTypeObject *)Py_NewRef((PyObject *)type));
}

/* Return where an object has an attribute, or NULL: it is to be asked for. */
static PyObject **place_of(PyObject *object, struct attribute *attribute)
{
    if (Py_TYPE(object) != attribute->type)
        look_up(Py_TYPE(object), attribute);
    PyObject **place = attribute->offset ? (PyObject **)((char *)object + attribute->offset) : NULL;
    return place && *place ? place : NULL;
}

/* Return the value of an attribute, a new reference, or NULL with the exception. */
static PyObject *get(PyObject *object, struct attribute *attribute)
{
    PyObject **place = place_of(object, attribute);
    return place ? Py_NewRef(*place) : PyObject_GetAttr(object, attribute->name);
}

static int set(PyObject *object, struct attribute *attribute, PyObject *value)
{
    PyObject **place = place_of(object, attribute);
    if (!place)
        return PyObject_SetAttr(object, attribute->name, value);
    Py_SETREF(*place, Py_NewRef(value));
    return 0;
}

/* Return the value of an attribute if the object holds it, a borrowed reference; NULL otherwise, without an exception. */
static PyObject *held(PyObject *object, struct attribute *attribute)
{
    PyObject **place = place_of(object, attribute);
    return place ? *place : NULL;
}

enum step {
    TAKEN,
    OTHER,  /* it is not the usual case */
    CROWD,  /* it is, but has too many clients */
    FULL,   /* it is for the next run */
    FAILED, /* with an exception */
};

/* Find the clients of a topic: what is known, or what `find` says. None: the topic is not valid. Return a new tuple, NULL: none or fault. */
static PyObject *clients_of(Writer *self, PyObject *audiences, PyObject *topic)
{
    PyObject *audience = PyDict_GetItemWithError(audiences, topic);
    if (audience && audience != Py_None)
        Py_INCREF(audience);
    else if (PyErr_Occurred() || !(audience = PyObject_CallOneArg(self->find, topic)))
        return NULL;
    PyObject *clients = audience == Py_None ? NULL : get(audience, &LISTED);
    if (clients == Py_None) { /* not at hand */
        Py_DECREF(clients);
        clients = get(audience, &CLIENTS);
    }
    Py_DECREF(audience);
    if (clients && !PyTuple_CheckExact(clients)) {
        Py_DECREF(clients);
        PyErr_SetString(PyExc_TypeError, "the clients of an audience are a tuple");
        return NULL;
    }
    return clients;
}

/* Return whether an attribute is a value; -1 on a fault. */
static int has(PyObject *object, struct attribute *attribute, PyObject *value)
{
    PyObject *found = object ? get(object, attribute) : NULL;
    Py_XDECREF(found);
    return found ? found == value : -1;
}

enum way { WRITE, READS, WAITS, BROKEN };

/* Return how a client gets an event: written directly, from the log that it reads now, or in another way, which Python knows. */
static enum way way_to(PyObject *client)
{
    PyObject *connection = get(client, &CONNECTION);
    int yes = has(connection, &READY, Py_True), reads = 0;
    if (!yes && (yes = has(connection, &CLOSED, Py_False)) > 0) {
        PyObject *state = get(client, &STATE);
        yes = reads = has(state, &TAKES_LIVE, Py_False);
        Py_XDECREF(state);
    }
    Py_XDECREF(connection);
    return yes < 0 ? BROKEN : reads ? READS : yes ? WRITE : WAITS;
}

/* Return how the clients get an event: WAITS and BROKEN if one of them does; READS if one of them reads, and none waits. */
static enum way way_to_all(PyObject *clients)
{
    enum way all = WRITE;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(clients); i++) {
        enum way way = way_to(PyTuple_GET_ITEM(clients, i));
        if (way >= WAITS)
            return way;
        all = way == READS ? READS : all;
    }
    return all;
}

/* Give a client one more event of the run. */
static void aim(Writer *self, PyObject *client, int event, int reads)
{
    size_t slot = ((size_t)client >> 4) * 0x9E3779B97F4A7C15ull >> 32 & (TARGET_SLOTS - 1);
    while (self->slots[slot] && self->targets[self->slots[slot] - 1].client != client)
        slot = (slot + 1) & (TARGET_SLOTS - 1);
    struct target *target;
    int link = self->links_count++;
    self->links[link] = (struct link){event, -1};
    if (self->slots[slot]) {
        target = &self->targets[self->slots[slot] - 1];
        self->links[target->last].next = link;
    } else {
        target = &self->targets[self->targets_count++];
        self->slots[slot] = (short)self->targets_count;
        *target = (struct target){.client = client, .first = link, .reads = reads};
        self->readers_count += reads;
    }
    target->last = link;
    target->count++;
    target->size += self->events[event].size;
}

/* Write the frame of an event of the run. */
static int add_frame(Writer *self, const struct message *message, struct event *event)
{
    event->at = self->frames.size;
    if (write_frame(&self->frames, self->namespace, message, "", &event->skip))
        return -1;
    event->size = self->frames.size - event->at;
    return 0;
}

/* Read a message, and where it stands; return whether it is the next event. */
static int follows(Writer *self, PyObject *reply, const char *epoch, long long reached, long long head, int consecutive,
                   struct message *message)
{
    Py_ssize_t parts = PyList_CheckExact(reply) ? PyList_GET_SIZE(reply) : 0;
    if (parts != 3 && parts != 4)
        return 0;
    PyObject *kind = PyList_GET_ITEM(reply, 0), *channel = PyList_GET_ITEM(reply, parts - 2), *text = PyList_GET_ITEM(reply, parts - 1);
    if (!PyBytes_CheckExact(kind) || !PyBytes_CheckExact(channel) || !PyBytes_CheckExact(text))
        return 0;
    if (parts == 4 ? !is_text(kind, "pmessage") : !is_text(kind, "message") && !is_text(kind, "smessage"))
        return 0;
    struct span rest = {PyBytes_AS_STRING(text), (size_t)PyBytes_GET_SIZE(text)};
    Py_ssize_t channel_bytes = PyBytes_GET_SIZE(channel);
    if (channel_bytes < self->prefix_bytes)
        return 0;
    if (PyBytes_AS_STRING(channel)[self->mark_at] == '/') { /* the topic stands before the message, in a line of its own */
        const char *line = memchr(rest.start, '\n', rest.size);
        if (!line)
            return 0;
        message->topic = (struct span){rest.start, (size_t)(line - rest.start)};
        rest = (struct span){line + 1, rest.size - message->topic.size - 1};
    } else
        message->topic = (struct span){PyBytes_AS_STRING(channel) + self->prefix_bytes, (size_t)(channel_bytes - self->prefix_bytes)};
    if (!message->topic.size || message->topic.size > MAX_TOPIC_BYTES || !read_message(rest, epoch, message))
        return 0;
    if (message->offset != reached + 1 &&
        (consecutive || message->offset <= reached || message->offset > (head > reached ? head : reached) + MAX_LEAP))
        return 0;
    return (Py_ssize_t)message->data.size <= self->max_payload_bytes && is_surely_json(message->data.start, message->data.size);
}

/* Take one message that follows into the run, with those who get it. */
static enum step take_one(Writer *self, PyObject *audiences, const struct message *message)
{
    PyObject *topic = PyUnicode_DecodeASCII(message->topic.start, (Py_ssize_t)message->topic.size, NULL);
    if (!topic) {
        if (!PyErr_ExceptionMatches(PyExc_UnicodeDecodeError))
            return FAILED;
        PyErr_Clear();
        return OTHER;
    }
    PyObject *clients = clients_of(self, audiences, topic);
    Py_ssize_t count = clients ? PyTuple_GET_SIZE(clients) : 0;
    enum way way = !clients ? (PyErr_Occurred() ? BROKEN : WAITS) : count > MAX_AUDIENCE ? WAITS : way_to_all(clients);
    if (way == READS && self->tally_every && message->offset % self->tally_every == 0)
        way = WAITS; /* its tally says where it went */
    if (way >= WAITS || !count) {
        Py_DECREF(topic);
        Py_XDECREF(clients);
        self->unwanted += way < WAITS;
        return way == BROKEN ? FAILED : way < WAITS ? TAKEN : count > MAX_AUDIENCE ? CROWD : OTHER;
    }
    struct event *event = &self->events[self->events_count];
    *event = (struct event){
        .topic = topic,
        .clients = clients,
        .payload_bytes = (Py_ssize_t)message->data.size,
        .offset = message->offset,
        .time_ms = message->time_ms,
    };
    if (add_frame(self, message, event)) {
        Py_DECREF(topic);
        Py_DECREF(clients);
        return FAILED;
    }
    self->events_count++;
    self->routed += count;
    for (Py_ssize_t i = 0; i < count; i++)
        aim(self, PyTuple_GET_ITEM(clients, i), self->events_count - 1, way == READS && way_to(PyTuple_GET_ITEM(clients, i)) == READS);
    return TAKEN;
}

/* -- writing -------------------------------------------------------------------------------------------------------------- */

/* Return the frames of a client's part, one behind the other: in place, if they are. */
static const char *joined(Writer *self, const struct target *target)
{
    const struct event *first = &self->events[self->links[target->first].event];
    const struct event *last = &self->events[self->links[target->last].event];
    if (last->at + last->size - first->at == target->size)
        return self->frames.bytes + first->at;
    self->joined.size = 0;
    if (buffer_reserve(&self->joined, target->size))
        return NULL;
    char *to = self->joined.bytes;
    for (int link = target->first; link >= 0; link = self->links[link].next) {
        const struct event *event = &self->events[self->links[link].event];
        to = put(to, self->frames.bytes + event->at, event->size);
    }
    return self->joined.bytes;
}

/* Write by the method of a socket that is not the system's own (of a test, of a pipe to TLS). */
static Py_ssize_t write_by_method(PyObject *send, const char *data, size_t size)
{
    PyObject *bytes = PyBytes_FromStringAndSize(data, (Py_ssize_t)size);
    PyObject *sent = bytes ? PyObject_CallOneArg(send, bytes) : NULL;
    Py_XDECREF(bytes);
    Py_ssize_t count = sent ? PyLong_AsSsize_t(sent) : -1;
    Py_XDECREF(sent);
    if (count < 0 && PyErr_ExceptionMatches(PyExc_BlockingIOError)) {
        PyErr_Clear();
        return 0;
    }
    return count;
}

/* Write to a client's socket; return how many bytes it took, or -1 with the exception set. */
static Py_ssize_t write_to(PyObject *client, const char *data, size_t size)
{
    PyObject *connection = get(client, &CONNECTION);
    PyObject *wire = connection ? get(connection, &WIRE) : NULL;
    PyObject *send_method = wire ? get(wire, &SEND) : NULL;
    Py_XDECREF(connection);
    Py_XDECREF(wire);
    if (!send_method)
        return -1;
    PyObject *sock = PyCFunction_Check(send_method) ? PyCFunction_GET_SELF(send_method) : NULL;
    Py_ssize_t sent;
    if (!sock || !PyObject_TypeCheck(sock, SOCKET))
        sent = write_by_method(send_method, data, size);
    else {
        int fd = PyObject_AsFileDescriptor(sock);
        if (fd < 0) { /* it is closed: say so as its own method does */
            PyErr_Clear();
            errno = EBADF;
            sent = -1;
        } else
            do
                sent = send(fd, data, size, MSG_DONTWAIT | MSG_NOSIGNAL);
            while (sent < 0 && errno == EINTR);
        if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            sent = 0;
        else if (sent < 0)
            PyErr_SetFromErrno(PyExc_OSError);
    }
    Py_DECREF(send_method);
    return sent;
}

static int count(PyObject *client, struct attribute *counter, int events)
{
    PyObject *had = get(client, counter);
    PyObject *more = had ? PyLong_FromLong(events) : NULL;
    PyObject *sum = more ? PyNumber_Add(had, more) : NULL;
    int status = sum ? set(client, counter, sum) : -1;
    Py_XDECREF(had);
    Py_XDECREF(more);
    Py_XDECREF(sum);
    return status;
}

/* Note a client whose socket did not take all: (client, bytes taken, error or None, its frames). */
static int leave(Writer *self, PyObject *left, const struct target *target, Py_ssize_t sent, PyObject *error)
{
    PyObject *frames = PyList_New(0);
    for (int link = target->first; frames && link >= 0; link = self->links[link].next) {
        const struct event *event = &self->events[self->links[link].event];
        PyObject *frame = Py_BuildValue("(y#nOLnL)", self->frames.bytes + event->at, (Py_ssize_t)event->size, (Py_ssize_t)event->skip,
                                        event->topic, event->offset, event->payload_bytes, event->time_ms);
        if (!frame || PyList_Append(frames, frame))
            Py_CLEAR(frames);
        Py_XDECREF(frame);
    }
    PyObject *entry = frames ? Py_BuildValue("(OnON)", target->client, sent, error ? error : Py_None, frames) : NULL;
    int status = entry ? PyList_Append(left, entry) : -1;
    Py_XDECREF(entry);
    return status;
}

/* Return the OSError that is set, taken off; NULL if another exception is. */
static PyObject *caught(void)
{
    if (!PyErr_ExceptionMatches(PyExc_OSError))
        return NULL;
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    Py_XDECREF(type);
    Py_XDECREF(traceback);
    return value;
}

/* Have the processor fetch what a write reads, one step further for all clients of the run at a time: what belongs to one of
 * thousands of clients is in no cache, and to wait for one after the other takes longer. */
static void fetch_ahead(const Writer *self)
{
    PyObject *at[MAX_LINKS];
    struct attribute *const steps[] = {&CONNECTION, &WIRE, &SEND};
    for (int i = 0; i < self->targets_count; i++)
        at[i] = self->targets[i].client;
    for (size_t step = 0; step < sizeof steps / sizeof *steps; step++)
        for (int i = 0; i < self->targets_count; i++) {
            at[i] = at[i] ? held(at[i], steps[step]) : NULL;
            if (at[i]) {
                FETCH(at[i]);
                FETCH((char *)at[i] + 64);
            }
        }
    for (int i = 0; i < self->targets_count; i++)
        if (at[i] && PyCFunction_Check(at[i]))
            FETCH(PyCFunction_GET_SELF(at[i]));
}

/* Write to all clients of the run, each once; return those whose socket did not take all, or NULL. */
static PyObject *write_all(Writer *self)
{
    PyObject *left = PyList_New(0);
    fetch_ahead(self);
    for (int i = 0; left && i < self->targets_count; i++) {
        const struct target *target = &self->targets[i];
        if (target->reads) {
            if (count(target->client, &LEFT_TO_LOG, target->count))
                Py_CLEAR(left);
            continue;
        }
        const char *data = joined(self, target);
        Py_ssize_t sent = data ? write_to(target->client, data, target->size) : -1;
        PyObject *error = sent < 0 && data ? caught() : NULL;
        int status = -1;
        if ((size_t)sent == target->size)
            status = count(target->client, &DIRECT, target->count);
        else if (sent >= 0 || error)
            status = leave(self, left, target, sent, error);
        Py_XDECREF(error);
        if (status)
            Py_CLEAR(left);
    }
    return left;
}

/* -- the results ---------------------------------------------------------------------------------------------------------- */

/* Append (first, second) to a list that grows, if it could be made so far. */
static void append_pair(PyObject **list, long long first, long long second)
{
    PyObject *pair = *list ? Py_BuildValue("(LL)", first, second) : NULL;
    if (!pair || PyList_Append(*list, pair))
        Py_CLEAR(*list);
    Py_XDECREF(pair);
}

/* Return how many events have each time, [(time_ms, events), …]: those that came together mostly share one. */
static PyObject *times_of(const Writer *self)
{
    PyObject *times = PyList_New(0);
    for (int i = 0, same; i < self->events_count; i += same) {
        for (same = 1; i + same < self->events_count && self->events[i + same].time_ms == self->events[i].time_ms;)
            same++;
        append_pair(&times, self->events[i].time_ms, same);
    }
    return times;
}

/* Return those events of which a tally is kept, [(offset, clients), …]. */
static PyObject *tallied(const Writer *self)
{
    PyObject *found = PyList_New(0);
    for (int i = 0; self->tally_every && i < self->events_count; i++)
        if (self->events[i].offset % self->tally_every == 0)
            append_pair(&found, self->events[i].offset, PyTuple_GET_SIZE(self->events[i].clients));
    return found;
}

static void end_run(Writer *self)
{
    for (int i = 0; i < self->events_count; i++) {
        Py_DECREF(self->events[i].topic);
        Py_DECREF(self->events[i].clients);
    }
    self->events_count = self->links_count = self->targets_count = self->readers_count = 0;
    self->unwanted = self->routed = 0;
    memset(self->slots, 0, sizeof self->slots);
    buffer_clear(&self->frames);
    buffer_clear(&self->joined);
}

PyDoc_STRVAR(take_doc,
             "take(replies, audiences, epoch, reached, head, consecutive)\n--\n\n"
             "See direct.py. Return (taken, reached, matched, unwanted, routed, writes, times, tallied, left, crowd, full).");

/* Return whether the run takes no more, or this event would not fit. A single event may be as large as it is. */
static int is_full(const Writer *self, Py_ssize_t taken, const struct message *message)
{
    size_t about = message->data.size + message->topic.size + MAX_HEADER_BYTES;
    return taken >= MAX_EVENTS || self->links_count >= MAX_WRITES || (self->events_count && self->frames.size + about > MAX_RUN_BYTES);
}

static PyObject *Writer_take(Writer *self, PyObject *const *args, Py_ssize_t count)
{
    if (count != 6 || !self->find || !PyList_CheckExact(args[0]) || !PyDict_CheckExact(args[1]) || !PyUnicode_CheckExact(args[2])) {
        PyErr_SetString(PyExc_TypeError, "take(replies: list, audiences: dict, epoch: str, reached: int, head: int, consecutive: bool)");
        return NULL;
    }
    Py_ssize_t epoch_length, taken_count = 0;
    const char *epoch = PyUnicode_AsUTF8AndSize(args[2], &epoch_length);
    long long reached = PyLong_AsLongLong(args[3]), head = PyLong_AsLongLong(args[4]);
    int consecutive = PyObject_IsTrue(args[5]);
    if (PyErr_Occurred())
        return NULL;
    self->written = reached;
    enum step step = epoch_length == EPOCH_LENGTH ? TAKEN : OTHER;
    while (step == TAKEN && taken_count < PyList_GET_SIZE(args[0])) {
        struct message message;
        if (!follows(self, PyList_GET_ITEM(args[0], taken_count), epoch, reached, head, consecutive, &message))
            step = OTHER;
        else if (is_full(self, taken_count, &message))
            step = FULL;
        else if ((step = take_one(self, args[1], &message)) == TAKEN) {
            reached = message.offset;
            taken_count++;
        }
    }
    if (step != FAILED)
        self->written = reached;
    PyObject *left = step == FAILED ? NULL : write_all(self);
    PyObject *times = left ? times_of(self) : NULL, *tallies = times ? tallied(self) : NULL;
    PyObject *taken = tallies ? Py_BuildValue("(nLiLLiOOOOO)", taken_count, reached, self->events_count, self->unwanted, self->routed,
                                              self->targets_count - self->readers_count, times, tallies, left, step == CROWD ? Py_True : Py_False,
                                              step == FULL ? Py_True : Py_False)
                              : NULL;
    Py_XDECREF(times);
    Py_XDECREF(tallies);
    Py_XDECREF(left);
    end_run(self);
    return taken;
}

/* -- the type ------------------------------------------------------------------------------------------------------------- */

static int Writer_init(Writer *self, PyObject *args, PyObject *names)
{
    static char *keywords[] = {"namespace", "prefix_bytes", "mark_at", "max_payload_bytes", "tally_every", "find", NULL};
    PyObject *namespace, *find;
    if (!PyArg_ParseTupleAndKeywords(args, names, "SnnnLO", keywords, &namespace, &self->prefix_bytes, &self->mark_at,
                                     &self->max_payload_bytes, &self->tally_every, &find))
        return -1;
    if (self->mark_at < 0 || self->mark_at >= self->prefix_bytes || self->max_payload_bytes < 0 || self->tally_every < 0) {
        PyErr_SetString(PyExc_ValueError, "expected 0 <= mark_at < prefix_bytes, and no negative number");
        return -1;
    }
    Py_XSETREF(self->namespace, Py_NewRef(namespace));
    Py_XSETREF(self->find, Py_NewRef(find));
    return 0;
}

static int Writer_traverse(Writer *self, visitproc visit, void *arg)
{
    Py_VISIT(self->find);
    return 0;
}

static int Writer_clear(Writer *self)
{
    Py_CLEAR(self->find);
    return 0;
}

static void Writer_dealloc(Writer *self)
{
    PyObject_GC_UnTrack(self);
    end_run(self);
    Writer_clear(self);
    Py_CLEAR(self->namespace);
    PyMem_Free(self->frames.bytes);
    PyMem_Free(self->joined.bytes);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyMethodDef METHODS[] = {
    {"take", (PyCFunction)(void (*)(void))Writer_take, METH_FASTCALL, take_doc},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef MEMBERS[] = {
    {"written", T_LONGLONG, offsetof(Writer, written), READONLY, PyDoc_STR("The offset up to which the last run has, or may have, been written.")},
    {"tally_every", T_LONGLONG, offsetof(Writer, tally_every), 0, PyDoc_STR("Events have a tally whose offset is a multiple of it; 0: none.")},
    {NULL, 0, 0, 0, NULL},
};

static PyTypeObject WRITER = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "headgate._native.Writer",
    .tp_doc = PyDoc_STR("Writer(namespace, prefix_bytes, mark_at, max_payload_bytes, tally_every, find)\n--\n\nSee direct.py."),
    .tp_basicsize = sizeof(Writer),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = PyType_GenericNew,
    .tp_init = (initproc)Writer_init,
    .tp_dealloc = (destructor)Writer_dealloc,
    .tp_traverse = (traverseproc)Writer_traverse,
    .tp_clear = (inquiry)Writer_clear,
    .tp_methods = METHODS,
    .tp_members = MEMBERS,
};

PyDoc_STRVAR(surely_doc, "is_surely_json(data)\n--\n\nReturn whether bytes are surely what event.check_json_in_python takes.");

static PyObject *surely(PyObject *module, PyObject *data)
{
    (void)module;
    char *bytes;
    Py_ssize_t size;
    if (PyBytes_AsStringAndSize(data, &bytes, &size))
        return NULL;
    return PyBool_FromLong(is_surely_json(bytes, (size_t)size));
}

static PyMethodDef FUNCTIONS[] = {
    {"page_frames", page_frames, METH_VARARGS, page_frames_doc},
    {"is_surely_json", surely, METH_O, surely_doc},
    {"usual_head", usual_head, METH_O, usual_head_doc},
    {"packed", packed, METH_O, packed_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef MODULE = {
    PyModuleDef_HEAD_INIT,
    .m_name = "headgate._native",
    .m_doc = PyDoc_STR("What the gateway does in C; the modules that import it have the contracts."),
    .m_size = -1,
    .m_methods = FUNCTIONS,
};

PyMODINIT_FUNC PyInit__native(void)
{
    static struct {
        struct attribute *attribute;
        const char *name;
    } const attributes[] = {{&CLIENTS, "clients"}, {&LISTED, "listed"}, {&CONNECTION, "connection"}, {&READY, "ready"},
                            {&WIRE, "wire"},       {&SEND, "send"},     {&DIRECT, "direct"},         {&STATE, "state"},
                            {&TAKES_LIVE, "takes_live"}, {&CLOSED, "closed"}, {&LEFT_TO_LOG, "left_to_log"}};
    for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++)
        if (!(attributes[i].attribute->name = PyUnicode_InternFromString(attributes[i].name)))
            return NULL;
    PyObject *sockets = PyImport_ImportModule("_socket");
    PyObject *type = sockets ? PyObject_GetAttrString(sockets, "socket") : NULL;
    Py_XDECREF(sockets);
    if (!type)
        return NULL;
    SOCKET = (PyTypeObject *)type;
    PyObject *module = PyType_Ready(&WRITER) ? NULL : PyModule_Create(&MODULE);
    if (module && PyModule_AddObjectRef(module, "Writer", (PyObject *)&WRITER))
        Py_CLEAR(module);
    return module;
}
