"""`/api/v1`: one table of operations. Requests are answered from it, and the OpenAPI document is made of it."""
