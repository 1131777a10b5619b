/* The walker of _surely_json.h for event.py, which has the contract. Optional: without it event.check_json_in_python does it all. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "_surely_json.h"

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
    {"is_surely_json", surely, METH_O, surely_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef MODULE = {
    PyModuleDef_HEAD_INIT,
    .m_name = "headgate._surely_json",
    .m_doc = PyDoc_STR("Whether bytes are surely JSON; event.py has the contract."),
    .m_size = 0,
    .m_methods = FUNCTIONS,
};

PyMODINIT_FUNC PyInit__surely_json(void)
{
    return PyModuleDef_Init(&MODULE);
}
