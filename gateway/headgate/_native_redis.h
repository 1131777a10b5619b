/* Commands as Redis reads them (RESP): for words that are texts, bytes or numbers. redis/bounded.py packs all others. */
#ifndef HEADGATE_NATIVE_REDIS_H
#define HEADGATE_NATIVE_REDIS_H

#include <Python.h>
#include <stdio.h>
#include <string.h>

#include "_native_frame.h"

enum { MAX_NUMBER = 24 }; /* letters of a number of 64 bits, with a sign */

/* Return the bytes of a word, in `digits` if it is a number; NULL if it is anything else, or, with an exception, no UTF-8. */
static struct span word_of(PyObject *word, char *digits)
{
    Py_ssize_t size = 0;
    int overflow = 0;
    if (PyBytes_Check(word))
        return (struct span){PyBytes_AS_STRING(word), (size_t)PyBytes_GET_SIZE(word)};
    if (PyUnicode_CheckExact(word)) {
        const char *text = PyUnicode_AsUTF8AndSize(word, &size);
        return (struct span){text, (size_t)size};
    }
    long long number = PyLong_CheckExact(word) ? PyLong_AsLongLongAndOverflow(word, &overflow) : 0;
    if (!PyLong_CheckExact(word) || overflow)
        return (struct span){NULL, 0};
    return (struct span){digits, (size_t)snprintf(digits, MAX_NUMBER, "%lld", number)};
}

static char *put_size(char *to, char kind, size_t size)
{
    *to++ = kind;
    to = put_number(to, (long long)size);
    return PUT_TEXT(to, "\r\n");
}

/* Write a command, or, with `to` NULL, only measure it; return its size, 0 if Python must pack it. A first word with a space is two. */
static size_t put_command(PyObject *command, char *to)
{
    char head[MAX_NUMBER], digits[MAX_NUMBER];
    PyObject *const *words = PySequence_Fast_ITEMS(command);
    size_t count = (size_t)PySequence_Fast_GET_SIZE(command), size = (size_t)(put_size(head, '*', count) - head);
    if (to)
        to = put(to, head, size);
    for (size_t at = 0; at < count; at++) {
        struct span word = word_of(words[at], digits);
        if (!word.start || (!at && memchr(word.start, ' ', word.size)))
            return 0;
        size_t head_size = (size_t)(put_size(head, '$', word.size) - head);
        size += head_size + word.size + 2;
        if (to) {
            to = put(put(to, head, head_size), word.start, word.size);
            to = PUT_TEXT(to, "\r\n");
        }
    }
    return size;
}

PyDoc_STRVAR(packed_doc, "packed(commands)\n--\n\nReturn a list of commands (tuples or lists) as bytes, or None. See bounded.py.");

static PyObject *packed(PyObject *module, PyObject *commands)
{
    (void)module;
    if (!PyList_CheckExact(commands) && !PyTuple_CheckExact(commands))
        Py_RETURN_NONE;
    size_t size = 0, one;
    for (Py_ssize_t at = 0; at < PySequence_Fast_GET_SIZE(commands); at++, size += one) {
        PyObject *command = PySequence_Fast_GET_ITEM(commands, at);
        int is_known = PyTuple_CheckExact(command) || PyList_CheckExact(command);
        if (!is_known || !(one = put_command(command, NULL))) {
            PyErr_Clear(); /* Python raises it again */
            Py_RETURN_NONE;
        }
    }
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    char *to = bytes ? PyBytes_AS_STRING(bytes) : NULL;
    for (Py_ssize_t at = 0; bytes && at < PySequence_Fast_GET_SIZE(commands); at++)
        to += put_command(PySequence_Fast_GET_ITEM(commands, at), to);
    return bytes;
}

#endif
