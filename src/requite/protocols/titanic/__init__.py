"""TSP, the Titanic Service Protocol (9/TSP): requests that are stored before they are answered."""
