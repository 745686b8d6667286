package srv6

// A test fails where the document or the header differs from the table.
//go:generate go run ./internal/gendocs
