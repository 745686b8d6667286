package instance
