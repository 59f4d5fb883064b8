// Package bench owns the report on speed: what is measured beside a peer, in turns, the statistics of it, and the page
// docs/performance.md with its plots. The measurements are tests with the build tag bench; they write their results into
// the cache folder, and the program report makes the page of them. It may hold nothing that the product needs.
package bench
