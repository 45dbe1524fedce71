"""Reading and writing gin: files and flags to objects, and objects to text."""
