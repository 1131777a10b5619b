/* The head of an HTTP/1.1 request in its usual form: within a line's limit of bytes, with each name once and without `_`.
 * transport/http_parser.py has the rules, and reads every other head.
 */
#ifndef HEADGATE_NATIVE_HEAD_H
#define HEADGATE_NATIVE_HEAD_H

#include <Python.h>

enum {
    MAX_HEAD_BYTES = 8192,  /* http_parser.MAX_LINE_BYTES, below both of its limits */
    MAX_HEADER_LINES = 100, /* http_parser.MAX_HEADER_LINES */
    PREFIX = 5,             /* bytes of `HTTP_` */
};

static int is_of_name(unsigned char byte)
{
    return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || (byte >= '0' && byte <= '9') ||
           (byte && strchr("-!#$%&'*+.^_`|~", byte));
}

/* Read the lines of headers into `fields`; return where they end, or NULL: they are unusual, or Python raised. */
static const char *read_fields(const char *at, const char *end, PyObject *fields)
{
    for (Py_ssize_t lines = 1; end - at > 2; lines++) {
        char key[64] = "HTTP_";
        size_t length = PREFIX;
        for (; is_of_name((unsigned char)*at); at++) { /* a bytes object ends with a zero */
            if (*at == '_' || length == sizeof key)
                return NULL;
            key[length++] = *at == '-' ? '_' : *at >= 'a' && *at <= 'z' ? (char)(*at - 'a' + 'A') : *at;
        }
        if (length == PREFIX || *at++ != ':' || lines > MAX_HEADER_LINES)
            return NULL;
        while (*at == ' ' || *at == '\t')
            at++;
        const char *value = at;
        while (*at == '\t' || ((unsigned char)*at >= ' ' && *at != 0x7f))
            at++;
        const char *stop = at;
        while (stop > value && (stop[-1] == ' ' || stop[-1] == '\t'))
            stop--;
        if (*at++ != '\r' || *at++ != '\n')
            return NULL;
        size_t rest = length - PREFIX;
        int is_bare = (rest == 14 && !memcmp(key + PREFIX, "CONTENT_LENGTH", rest)) ||
                      (rest == 12 && !memcmp(key + PREFIX, "CONTENT_TYPE", rest));
        PyObject *name = is_bare ? PyUnicode_DecodeASCII(key + PREFIX, (Py_ssize_t)rest, NULL)
                                 : PyUnicode_DecodeASCII(key, (Py_ssize_t)length, NULL);
        PyObject *text = name ? PyUnicode_DecodeLatin1(value, stop - value, NULL) : NULL;
        int failed = !text || PyDict_SetItem(fields, name, text);
        Py_XDECREF(name);
        Py_XDECREF(text);
        if (failed || PyDict_GET_SIZE(fields) != lines) /* a name came twice */
            return NULL;
    }
    return at;
}

PyDoc_STRVAR(usual_head_doc, "usual_head(block)\n--\n\nReturn (method, target, fields) of a usual head, or None. See http_parser.py.");

static PyObject *usual_head(PyObject *module, PyObject *block)
{
    (void)module;
    static const char PROTOCOL[] = " HTTP/1.1\r\n";
    char *start;
    Py_ssize_t size;
    if (PyBytes_AsStringAndSize(block, &start, &size))
        return NULL;
    const char *method = start, *end = start + size;
    while (is_of_name((unsigned char)*start))
        start++;
    const char *target = start + 1, *stop = target;
    if (size > MAX_HEAD_BYTES || start == method || *start != ' ')
        Py_RETURN_NONE;
    while (*stop > ' ' && *stop < 0x7f)
        stop++;
    if (stop == target || strncmp(stop, PROTOCOL, sizeof PROTOCOL - 1))
        Py_RETURN_NONE;
    PyObject *fields = PyDict_New();
    const char *at = fields ? read_fields(stop + sizeof PROTOCOL - 1, end, fields) : NULL;
    if (at && end - at == 2 && !memcmp(at, "\r\n", 2))
        return Py_BuildValue("(s#s#N)", method, (Py_ssize_t)(start - method), target, (Py_ssize_t)(stop - target), fields);
    Py_XDECREF(fields);
    if (PyErr_Occurred())
        return NULL;
    Py_RETURN_NONE;
}

#endif
