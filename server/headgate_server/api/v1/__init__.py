"""`/api/v1` has one table of operations, which answers requests and generates the OpenAPI document."""
