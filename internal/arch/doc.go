// Package arch owns the tests of the project as a whole: which package may import which, what the plugin links, and
// that tables and documents say what the code does; it holds no other code.
package arch
