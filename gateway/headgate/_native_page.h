/* Entries of the log as the frames of clients that catch up: what delivery/page_cache.py makes of each, for the usual ones.
 *
 * The usual entry is `<offset>-0` with topic, id, time, data and sum, and perhaps clock, in this order (log.lua writes them), of an
 * event that redis/log.py takes: with a payload that is surely JSON. Any other is left to Python, which says what is wrong with it.
 */
#ifndef HEADGATE_NATIVE_PAGE_H
#define HEADGATE_NATIVE_PAGE_H

#include <Python.h>
#include <string.h>

#include "_native_frame.h"
#include "_native_json.h"
#include "_native_message.h"

enum { ENTRY_FIELDS = 5, MOST_ENTRY_FIELDS = 6 };

static struct span span_of(PyObject *bytes)
{
    return (struct span){PyBytes_AS_STRING(bytes), (size_t)PyBytes_GET_SIZE(bytes)};
}

/* Read a number that is all of a text, or all in front of `-0`; return whether it is one. A bytes object ends with a zero byte. */
static int read_whole(struct span text, const char *rest, long long *number)
{
    const char *end = text.start + text.size, *at = read_number(text.start, end + 1, *rest, number);
    return at && (size_t)(end - at) == strlen(rest) && !memcmp(at, rest, strlen(rest));
}

static int is_id(struct span id)
{
    if (!id.size || id.size > MAX_ID_LENGTH)
        return 0;
    for (size_t at = 0; at < id.size; at++)
        if (!is_of_id((unsigned char)id.start[at]))
            return 0;
    return 1;
}

/* Read an entry of a reply to XRANGE; return whether it is a usual one. */
static int read_log_entry(PyObject *entry, Py_ssize_t max_payload_bytes, struct message *message)
{
    static const char *const NAMES[MOST_ENTRY_FIELDS] = {"topic", "id", "time", "data", "sum", "clock"};
    if (!PyList_CheckExact(entry) || PyList_GET_SIZE(entry) != 2)
        return 0;
    PyObject *place = PyList_GET_ITEM(entry, 0), *fields = PyList_GET_ITEM(entry, 1);
    if (!PyBytes_CheckExact(place) || !PyList_CheckExact(fields))
        return 0;
    Py_ssize_t count = PyList_GET_SIZE(fields);
    if (count != 2 * ENTRY_FIELDS && count != 2 * MOST_ENTRY_FIELDS)
        return 0;
    for (Py_ssize_t at = 0; at < count; at++) {
        PyObject *field = PyList_GET_ITEM(fields, at);
        if (!PyBytes_CheckExact(field) || (at % 2 == 0 && !is_text(field, NAMES[at / 2])))
            return 0;
    }
    message->topic = span_of(PyList_GET_ITEM(fields, 1));
    message->id = span_of(PyList_GET_ITEM(fields, 3));
    message->data = span_of(PyList_GET_ITEM(fields, 7));
    return read_whole(span_of(place), "-0", &message->offset) && read_whole(span_of(PyList_GET_ITEM(fields, 5)), "", &message->time_ms) &&
           is_id(message->id) && message->topic.size && message->topic.size <= MAX_TOPIC_BYTES &&
           message->data.size <= (size_t)max_payload_bytes && is_surely_json(message->data.start, message->data.size);
}

/* Return the topic in an entry as the text that all its events share, borrowed from `topics`; None if it is no topic; NULL on a fault. */
static PyObject *shared_topic(PyObject *topics, PyObject *entry, PyObject *topic_of)
{
    PyObject *bytes = PyList_GET_ITEM(PyList_GET_ITEM(entry, 1), 1);
    PyObject *topic = PyDict_GetItemWithError(topics, bytes);
    if (topic || PyErr_Occurred())
        return topic;
    topic = PyObject_CallOneArg(topic_of, bytes);
    int status = topic ? PyDict_SetItem(topics, bytes, topic) : -1;
    Py_XDECREF(topic);
    return status ? NULL : topic;
}

/* Return the frame of an entry, a new reference; None if it is not a usual one; NULL on a fault. */
static PyObject *page_frame(PyObject *entry, PyObject *namespace, Py_ssize_t max_payload_bytes, PyObject *topics, PyObject *topic_of,
                            PyObject *frame_of, struct buffer *buffer)
{
    struct message message;
    if (!read_log_entry(entry, max_payload_bytes, &message))
        Py_RETURN_NONE;
    PyObject *topic = shared_topic(topics, entry, topic_of);
    if (!topic)
        return NULL;
    if (topic == Py_None)
        Py_RETURN_NONE;
    size_t skip;
    buffer->size = 0;
    if (write_frame(buffer, namespace, &message, ",\"replayed\":true", &skip))
        return NULL;
    return PyObject_CallFunction(frame_of, "y#nOLnL", buffer->bytes, (Py_ssize_t)buffer->size, (Py_ssize_t)skip, topic, message.offset,
                                 (Py_ssize_t)message.data.size, message.time_ms);
}

PyDoc_STRVAR(page_frames_doc, "page_frames(entries, namespace, max_payload_bytes, topic_of, frame_of)\n--\n\n"
                              "Return the frame of each usual entry of a reply to XRANGE, and None for the others; see page_cache.py.");

static PyObject *page_frames(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *entries, *namespace, *topic_of, *frame_of;
    Py_ssize_t max_payload_bytes;
    if (!PyArg_ParseTuple(args, "O!SnOO", &PyList_Type, &entries, &namespace, &max_payload_bytes, &topic_of, &frame_of))
        return NULL;
    if (max_payload_bytes < 0) {
        PyErr_SetString(PyExc_ValueError, "expected no negative number");
        return NULL;
    }
    struct buffer buffer = {0};
    PyObject *topics = PyDict_New(), *frames = topics ? PyList_New(0) : NULL;
    for (Py_ssize_t at = 0; frames && at < PyList_GET_SIZE(entries); at++) {
        PyObject *frame =
            page_frame(PyList_GET_ITEM(entries, at), namespace, max_payload_bytes, topics, topic_of, frame_of, &buffer);
        if (!frame || PyList_Append(frames, frame))
            Py_CLEAR(frames);
        Py_XDECREF(frame);
    }
    Py_XDECREF(topics);
    PyMem_Free(buffer.bytes);
    return frames;
}

#endif
