package srv6

// The document is a file of the table: a test fails where they differ.
//go:generate sh -c "go run ./internal/gendocs > ../docs/behaviors.md"
