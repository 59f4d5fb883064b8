// Command empty owns the least that a program in Go can do: the plugin's start is compared with it.
package main

func main() {}
